// Roles of fields in a release, guessed from a field's name, type and some rows.

export const ROLES = {
  sensitive: "Sensitive: protect it",
  known: "May be known of a person",
  identifier: "Names a person",
  weight: "A survey weight",
  other: "Something else",
};

const NUMERIC = /^(u?int|float|double|decimal|half)/;
const MOMENT = /^(date|time)/;
const NAMING =
  /(^|[_\W])(id|ids|uuid|hid|pid|hhid|name|names|surname|email|e-mail|phone|ssn|passport|iban|account|address)($|[_\W])|(user|person|people|customer|client|patient|record|case|row|account|employee|member|student|household)id$/i;
const NAMING_BY_CAPITALS = /[a-z](Id|ID)$/; // customerId; but not paid
const WEIGHT =
  /(^|[_\W])(sampling|sample|survey|design|household|hh|person|individual|final|replicate|calibrat\w*)[_\W]?(weights?|wgts?|wts?)($|[_\W])|(^|[_\W])a?fnlwgt($|[_\W])|(^|[_\W])p?wgts?($|[_\W])/i;
const KNOWN =
  /(^|[_\W])(age|sex|gender|race|birth|born|dob|town|city|region|county|state|country|native|zip|postcode|postal|education|occupation|job|marital|status|nationality|household|relationship|profession|size|sector)($|[_\W])/i;
const SENSITIVE =
  /(income|salary|wage|saving|wealth|debt|loan|price|cost|tax|revenue|turnover|expend|amount|balance|capital|diagnos|disease|illness|drug|score|grade|religion|party|vote|weight|bmi)/i;
const ALL_DIFFERENT = 0.98;
const FEW = 60;

const isNumeric = (field) => NUMERIC.test(field.type);

/** Counts distinct values, nulls and rows of every field in the sample; null without a sample. */
export function findings(fields, rows) {
  return fields.map((_, at) => {
    if (!rows?.length) return null;
    const cells = rows.map((row) => row[at] ?? null);
    const values = cells.filter((cell) => cell !== null);
    return { rows: rows.length, nulls: cells.length - values.length, distinct: new Set(values).size };
  });
}

/** Returns {role, why}: the guessed role, and the reason. */
export function guess(field, found) {
  const discrete = !/^(float|double|half|decimal|date|time)/.test(field.type);
  const ownValue =
    found && found.rows > 20 && discrete && found.distinct > ALL_DIFFERENT * (found.rows - found.nulls);
  if (NAMING.test(field.name) || NAMING_BY_CAPITALS.test(field.name))
    return { role: "identifier", why: "by its name" };
  if (WEIGHT.test(field.name) && isNumeric(field)) return { role: "weight", why: "by its name" };
  if (SENSITIVE.test(field.name)) return { role: "sensitive", why: "by its name" };
  if (KNOWN.test(field.name)) return { role: "known", why: "by its name" };
  if (ownValue) return { role: "identifier", why: "nearly every row has a different value" };
  if (MOMENT.test(field.type)) return { role: "other", why: "a date or time" };
  if (!NUMERIC.test(field.type) && found && found.distinct <= FEW)
    return { role: "known", why: "few different values" };
  if (NUMERIC.test(field.type) && (!found || found.distinct > FEW))
    return { role: "sensitive", why: "a number of many values" };
  return { role: "other", why: "no sign of another role" };
}

/**
 * Suggests the initial value of a parameter from the roles; undefined without a suggestion.
 * Reads the requirements from the parameter's description: the console knows no service by name.
 */
export function suggestion(name, schema, fields, service) {
  const having = (role) => fields.filter((field) => field.role === role);
  const names = (some) => (some.length ? some.map((field) => field.name) : undefined);
  const numbersOnly = /numeric|numbers/.test(`${service?.summary} ${schema.description}`);
  if (/^(swap_|perturb_)?fields$/.test(name))
    return names(having("sensitive").filter((field) => !numbersOnly || isNumeric(field)));
  if (name === "identifier_fields") return names(having("identifier"));
  if (name === "weight_fields") return names(having("weight"));
  if (name === "distance_fields" || name === "key_fields") return names(having("known"));
  if (name === "control_field") {
    const ordered = /order/.test(schema.description);
    const known = having("known").filter((field) => isNumeric(field) === ordered);
    return known.sort((one, other) => (other.distinct ?? 0) - (one.distinct ?? 0))[0]?.name;
  }
  return undefined;
}

/** Options of the measures about fields: those that an intruder knows, identifiers and weights. */
export const ROLE_OPTIONS = ["key_fields", "identifier_fields", "weight_fields"];

/** Returns `suggestion` for a form of parameters; nested models get no suggestions. */
export const suggesting = (fields, service) => (name, schema, path) =>
  path.length ? undefined : suggestion(name, schema, fields, service);
