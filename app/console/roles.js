// Roles of fields in a release, guessed from a field's name, type and profile.

import {
  asSpelled,
  HOUSEHOLD,
  KNOWN,
  NAMING,
  NUMBERING,
  OF_NAMED,
  SENSITIVE,
  SENSITIVE_ANYWHERE,
  SIZE,
  STRATUM,
  WEIGHT,
  wordsOf,
} from "./role_words.js";

export const ROLES = {
  sensitive: "To protect",
  known: "Known to others",
  identifier: "Names a person",
  household: "Household number",
  stratum: "Stratum of the sample",
  weight: "Survey weight",
  drop: "Leave it out",
  other: "Something else",
};

export const ROLE_MEANINGS = {
  sensitive: "what nobody should learn about a person; the services swap it",
  known: "what others can find out about a person, such as age or town",
  identifier: "a name or a number of one person; leave it out of a release",
  household: "a number that members of a household share; it finds them, as a name does",
  stratum: "the part of the population that a row was drawn from; values should stay in it",
  weight: "the number of persons that a row stands for; it is not swapped",
  drop: "not needed: the copy of the table is made without it",
  other: "none of these: it stays as it is",
};

const NUMERIC = /^(u?int|float|double|decimal|half)/;
const WHOLE = /^(u?int|string)/;
const MOMENT = /^(date|time)/;

const ALL_DIFFERENT = 0.98;
const FEW = 60;
const HOUSEHOLD_SIZES = [1.2, 8]; // mean rows of a household
const LARGEST_HOUSEHOLD = 40;
const MOST_DOMAINS = 30;

const isNumeric = (field) => NUMERIC.test(field.type);

/**
 * Whether the rows look grouped by the field as by a household: all rows of a value are adjacent, each
 * value has few rows, and there are many values.
 */
function groupsRows(field, found) {
  if (!found?.runs || !found.distinct_is_exact || !WHOLE.test(field.type) || found.distinct < 20) return false;
  const mean = (found.rows - found.nulls) / found.distinct;
  const adjacent = found.runs <= found.distinct + (found.nulls > 0 ? 1 : 0);
  return (
    adjacent &&
    mean >= HOUSEHOLD_SIZES[0] &&
    mean <= HOUSEHOLD_SIZES[1] &&
    found.largest_count <= LARGEST_HOUSEHOLD
  );
}

/** Returns {role, why}: the guessed role, and the reason. `found` is the field's profile, with `rows`. */
export function guess(field, found) {
  const words = wordsOf(field.name);
  const by = (pattern) => {
    const [match] = pattern.exec(words) ?? [];
    return match === undefined ? null : `its name has “${asSpelled(match, field.name)}”`;
  };
  const discrete = !/^(float|double|half|decimal|date|time)/.test(field.type);
  const ownValue =
    found && found.rows > 20 && discrete && found.distinct > ALL_DIFFERENT * (found.rows - found.nulls);
  const named = (role, ...patterns) => {
    const why = patterns.map(by).find(Boolean);
    return why ? { role, why } : null;
  };
  const isSensitive = SENSITIVE.test(words) || SENSITIVE_ANYWHERE.test(words); // account_balance names nobody
  const first =
    named("household", HOUSEHOLD) ??
    named("stratum", STRATUM) ??
    (OF_NAMED.test(words) ? null : named("identifier", NUMBERING, ...(isSensitive ? [] : [NAMING]))) ??
    (isNumeric(field) ? named("weight", WEIGHT) : null);
  if (first) return first;
  if (!isSensitive && groupsRows(field, found))
    return {
      role: "household",
      why: `rows with the same value are adjacent, at most ${found.largest_count} of them`,
    };
  const second = named("sensitive", SENSITIVE, SENSITIVE_ANYWHERE) ?? named("known", KNOWN, SIZE);
  if (second) return second;
  if (ownValue) return { role: "identifier", why: "nearly every row has a different value" };
  if (MOMENT.test(field.type)) return { role: "other", why: "a date or time" };
  if (!NUMERIC.test(field.type) && found && found.distinct <= FEW)
    return { role: "known", why: `a text of few different values (${found.distinct})` };
  if (NUMERIC.test(field.type) && (!found || found.distinct > FEW))
    return {
      role: "sensitive",
      why: found ? `a number of many different values (${found.distinct})` : "a number",
    };
  return { role: "other", why: "nothing in its name or values points to another role" };
}

/**
 * Suggests the initial value of a parameter from the roles; undefined without a suggestion.
 * Reads the requirements from the parameter's description: the console knows no service by name.
 */
export function suggestion(name, schema, fields, service) {
  const having = (...roles) => fields.filter((field) => roles.includes(field.role));
  const names = (some) => (some.length ? some.map((field) => field.name) : undefined);
  const numbersOnly = /numeric|numbers/.test(`${service?.summary} ${schema.description}`);
  if (/^(swap_|perturb_)?fields$/.test(name))
    return names(having("sensitive").filter((field) => !numbersOnly || isNumeric(field)));
  if (name === "identifier_fields") return names(having("identifier", "household", "drop"));
  if (name === "household") return having("household")[0]?.name;
  if (name === "weight_fields") return names(having("weight"));
  if (WEIGHT_OPTIONS.includes(name)) return having("weight").length === 1 ? ofSurvey(name, having, names) : undefined;
  if (name === "distance_fields") return names(having("known"));
  if (name === "key_fields") return names(having("known", "stratum"));
  if (name === "control_field") {
    const ordered = /order/.test(schema.description);
    const strata = having("stratum");
    if (strata.length && !ordered) return strata.length === 1 ? strata[0].name : names(strata);
    const known = having("known").filter((field) => isNumeric(field) === ordered);
    return known.sort((one, other) => (other.distinct ?? 0) - (one.distinct ?? 0))[0]?.name;
  }
  return undefined;
}

/** Returns the domains, strata or clusters of a survey; undefined without a suggestion. */
function ofSurvey(name, having, names) {
  const only = (role) => (having(role).length === 1 ? having(role)[0].name : undefined);
  if (name === "stratum_field") return only("stratum");
  if (name === "cluster_field") return only("household");
  const few = having("stratum", "known").filter((field) => field.distinct > 1 && field.distinct <= MOST_DOMAINS);
  return names(few.filter((field) => !isNumeric(field) || field.role === "stratum").slice(0, 3));
}

/** Options of the measures about fields: those that an intruder knows, identifiers and weights. */
export const ROLE_OPTIONS = ["key_fields", "identifier_fields", "weight_fields"];

/** Options of the weighted measures; a comparison refuses them unless a figure uses them. */
export const WEIGHT_OPTIONS = ["domain_fields", "stratum_field", "cluster_field"];

/** Returns `suggestion` for a form of parameters; nested models get no suggestions. */
export const suggesting = (fields, service) => (name, schema, path) =>
  path.length ? undefined : suggestion(name, schema, fields, service);
