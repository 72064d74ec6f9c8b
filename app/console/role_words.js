// Words of field names that show a role, by role and language: patterns of words as `wordsOf` gives them.
//
// A space before a question mark: the words are often written as one. A word that means something else in another
// of the languages stands only with the words that decide it, or alone.

const NUMBER = "(?:id|nr|no|num|nummer|number|key|ziffer|kennziffer)";
const NUMERO = "(?:id|identifiant|cod|codice|codigo|num|numero|no)(?: d[eu]l{0,2}a?)?";

const WORDS = {
  numbering: {
    en: "ids?|uuid|pid|ssn|passport|iban|(?:user|person|people|customer|client|patient|record|case|row|account|employee|member|student)id",
    de: `(?:personen|kunden|patienten|versicherten|mitarbeiter|personal|konto|steuer|sozialversicherungs|ausweis|matrikel|akten|fall) ?${NUMBER}|lfd ?nr|laufende ?nummer`,
    fr: `${NUMERO} (?:client|patient|dossier|secu\\p{L}*|individu|personne)|identifiant|matricule|nir`,
    es: `${NUMERO} (?:cliente|paciente|expediente|persona)|identificador|dni|nif|^nie$|pasaporte`,
    it: `${NUMERO} (?:cliente|paziente|pratica|persona)|codice ?fiscale|identificativo|matricola`,
    nl: `(?:persoons?|klant|patient|personeels|burgerservice) ?${NUMBER}|bsn`,
  },
  naming: {
    en: "names?|surname|(?:user|first|last|full|fore)name|e ?mail|(?:tele)?phone|account|address",
    de: "(?:nach|vor|familien|geburts)name|anschrift|adresse|strasse|hausnummer|telefon(?:nummer)?|handy(?:nummer)?",
    fr: "^nom$|nom (?:de )?(?:famille|usage|jeune fille|client|patient|complet)|prenoms?|adresse|courriel|telephone|rue",
    es: "^nombres?$|nombre (?:completo|y? ?apellidos|(?:de(?:l)? )?(?:cliente|paciente|persona))|apellidos?|direccion|correo(?: electronico)?|telefono|movil|calle",
    it: "^nome$|nome (?:completo|e? ?cognome|(?:del )?(?:cliente|paziente))|cognome|indirizzo|telefono|cellulare",
    nl: "^naam$|(?:achter|voor)naam|adres|straat|huisnummer|telefoon(?:nummer)?",
  },
  ofNamed: { en: "type|kind|class|category|status|count|age|level|group", de: "typ|art|anzahl", es: "tipo", nl: "soort|aantal" }, // id_type names nobody
  household: {
    en: "hid|(?:hh|house ?hold) ?(?:id|nr|no|num|number|key)|family ?id|db 030",
    de: `haushalts? ?${NUMBER}`,
    fr: `${NUMERO} (?:menage|foyer)|(?:menage|foyer) ?id`,
    es: `${NUMERO} hogar|hogar ?id`,
    it: `${NUMERO} famiglia|famiglia ?id`,
    nl: `huishoud(?:en)?s? ?${NUMBER}`,
  },
  stratum: {
    en: "strat(?:um|a)?(?: ?(?:id|nr|no))?|psu|primary sampling unit|db 050|db 060",
    de: "schichtung|(?:stichproben)?schicht ?(?:id|nr|nummer)",
    fr: "strate",
    es: "estrato",
    it: "strato",
  },
  weight: {
    en: "(?:sampling|sample|survey|design|household|hh|person|individual|final|replicate|calibrat\\p{L}*) ?(?:weights?|wgts?|wts?)|a?fnlwgt|p?wgts?|db 090|rb 050|pb 040",
    de: "hochrechnungs ?(?:faktor|gewicht)|gewichtung(?:s ?faktor)?|(?:design|haushalts|personen|stichproben) ?gewicht",
    fr: "ponderation|poids (?:de |du )?(?:sondage|menage|individu)",
    es: "ponderador|ponderacion|factor (?:de )?(?:expansion|elevacion)|peso muestral",
    it: "peso campionario|coefficiente (?:di )?riporto",
    nl: "(?:weeg|ophoog|gewichts)factor",
  },
  known: {
    en: "age|sex|gender|race|birth(?: ?(?:date|day|year|place))?|born|dob|(?:date|year|place)ofbirth|(?:home ?)?town|city|region|county|state|country|native|zip|postcode|postal|education|occupation|job|marital|status|nationality|citizenship|household|relationship|profession|hh? ?size|sector|db 040|rb 090",
    de: "alter|alters ?(?:gruppe|klasse)|geschlecht|geburts\\p{L}*|(?:wohn)?ort|stadt|gemeinde|(?:land)?kreis|bezirk|bundesland|^land$|(?:wohn|herkunfts)land|plz|postleitzahl|bildung\\p{L}*|(?:schul|aus)bildung|(?:schul)?abschluss|(?:beruf|erwerbs)\\p{L}*|branche|(?:familien|zivil)stand|nationalita?e?t|staatsangeho?e?rigkeit|staatsbu?e?rgerschaft|herkunft|haushalts ?gro?e?sse",
    fr: "sexe|genre|naissance|ville|commune|departement|^pays$|pays (?:de )?(?:residence|origine)|code ?postal|diplome|etudes|metier|secteur|situation (?:familiale|matrimoniale)|etat (?:civil|matrimonial)|nationalite|taille (?:du )?menage",
    es: "edad|sexo|genero|nacimiento|fecha nac|ciudad|municipio|provincia|comunidad|pais|codigo ?postal|estudios|nivel educativo|educacion|profesion|ocupacion|estado civil|nacionalidad|taman[no]o? (?:del )?hogar",
    it: "eta|sesso|genere|nascita|citta|comune|provincia|regione|paese|^cap$|istruzione|titolo (?:di )?studio|professione|occupazione|settore|stato civile|nazionalita|cittadinanza|numero (?:di )?componenti",
    nl: "leeftijd\\p{L}*|geslacht|geboorte\\p{L}*|woonplaats|stad|gemeente|provincie|opleiding\\p{L}*|beroep\\p{L}*|burgerlijke ?staat|nationaliteit|herkomst|huishoud(?:ens?)?grootte",
  },
  sensitive: {
    en: "wages?|savings?|wealth|debts?|loans?|prices?|costs?|tax(?:es)?|amounts?|balance|capital|illness(?:es)?|drugs?|scores?|grades?|party|votes?|weights?|bmi",
    de: "\\p{L}*(?:gehalt|lohn)|verdienst|ersparnisse?|schulden|steuern?|miete|betrag|preis|kosten|ausgaben|krankheit(?:en)?|konfession|partei|(?:ko?e?rper)?gewicht",
    fr: "revenus?|salaires?|patrimoine|epargne|dettes?|impots?|loyer|prix|montant|depenses?|maladies?|poids",
    es: "ingresos?|salario|sueldo|renta|ahorros?|deudas?|patrimonio|impuestos?|precio|importe|saldo|gastos?|enfermedad(?:es)?|partido|voto|peso",
    it: "reddit[oi]|stipendio|salario|retribuzione|risparmi|debit[oi]|patrimonio|impost[ae]|prezzo|importo|saldo|spes[ae]|malatti[ae]|partito|voto|peso",
    nl: "salaris|\\p{L}*loon|spaargeld|schuld(?:en)?|belasting(?:en)?|huur|prijs|bedrag|uitgaven|ziekten?|godsdienst|partij|gewicht",
  },
};

/** Returns the pattern of the words of a kind in all languages. */
function wordsLike(kind) {
  const some = Object.values(WORDS[kind]).join("|");
  return new RegExp(`(?<= |^)(?:${some})(?= |$)`, "u");
}

export const NUMBERING = wordsLike("numbering");
export const NAMING = wordsLike("naming");
export const OF_NAMED = wordsLike("ofNamed");
export const HOUSEHOLD = wordsLike("household");
export const STRATUM = wordsLike("stratum");
export const WEIGHT = wordsLike("weight");
export const KNOWN = wordsLike("known");
export const SENSITIVE = wordsLike("sensitive");
export const SIZE = /^size(?= |$)/; // of a household; but not fSize
export const SENSITIVE_ANYWHERE =
  /income|salar(?:y|ies)|revenue|turnover|expend[a-z]*|diagnos[a-z]*|disease|religion|einkommen|umsatz|vermoe?gen|inkomen|omzet/; // in no other word

/** Returns the words of a name, lower case and without accents, with a space between: of `hourlyWage1`, `hourly wage 1`. */
export const wordsOf = (name) =>
  name
    .normalize("NFC")
    .replace(/(?<=\p{Ll})(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})|(?<=\p{L})(?=\p{N})|(?<=\p{N})(?=\p{L})/gu, " ")
    .replace(/[^\p{L}\p{M}\p{N}]+/gu, " ")
    .trim()
    .toLowerCase()
    .normalize("NFD")
    .replace(/\p{M}/gu, "")
    .replaceAll("ß", "ss");

/** Returns words of a name as the name spells them: of `hourly wage`, `hourlyWage`. */
export function asSpelled(words, name) {
  const letters = words
    .replaceAll("ss", "(?:ss|ß)")
    .replaceAll(" ", "[^\\p{L}\\p{N}]*")
    .replace(/(?<!\\|\{)[a-z](?!\})/g, "$&\\p{M}*");
  return new RegExp(letters, "iu").exec(name.normalize("NFD"))?.[0].normalize("NFC") ?? words;
}
