// First view: upload a table, use the sample table, or open one of this tab's tables.

import * as api from "../api.js";
import { searchOf } from "../annotations.js";
import { alarm, element, named, newId } from "../dom.js";
import { form, point } from "../form.js";
import { checkFirstLine } from "../header_check.js";
import { navigate, navigateUnlessLeft, routeHref } from "../router.js";
import { inForm } from "../problem_words.js";
import { people } from "../sample_table.js";
import * as session from "../session.js";
import { counted, moment } from "../format.js";

const TYPES = {
  __proto__: null, // a file may have the ending .constructor
  csv: "text/csv",
  tsv: "text/csv",
  txt: "text/csv",
  parquet: "application/vnd.apache.parquet",
  pq: "application/vnd.apache.parquet",
  arrow: "application/vnd.apache.arrow.stream",
  arrows: "application/vnd.apache.arrow.stream",
  ipc: "application/vnd.apache.arrow.stream",
};

const UPLOADED = Object.values(TYPES);

const OF_SPREADSHEET =
  "It is a workbook. Open it in the spreadsheet program, choose “Save as” and the format CSV (UTF-8) for the sheet with the table, then choose that file here.";
const OF_STATISTICS =
  "It is a file of a statistics package. Export the table as CSV or Parquet there, then choose that file here.";
/** Ending of a file that the service does not read -> the way to a file that it reads. */
const OTHER_PROGRAMS = {
  __proto__: null,
  xlsx: OF_SPREADSHEET,
  xls: OF_SPREADSHEET,
  xlsm: OF_SPREADSHEET,
  ods: OF_SPREADSHEET,
  numbers: OF_SPREADSHEET,
  sav: OF_STATISTICS,
  dta: OF_STATISTICS,
  sas7bdat: OF_STATISTICS,
};

const OTHER_FILE =
  "Its name does not end as that of a table does. Export the table as CSV or Parquet and choose that file. If it is a CSV already, give its name the ending .csv.";

const SEVERAL_FILES = "Each file is a table of its own: drop one file at a time. Nothing was uploaded.";

const ANNOTATIONS = ["name", "label", "notes"];
const MOST_OF_A_NAME = 120; // characters
const MOST_FOUND = 100;

/** Progress and problem of an upload. They outlive the view, so that a user who leaves the view and returns finds them. */
const said = element("div", { role: "status" });
const answer = element("div", {});
let uploads = 0; // under way
let hasUnseenProblem = false;
let takeHere; // of the view that is shown, whose form states how the CSV is written

/** Shows why a file is not uploaded. */
function refuse(why) {
  const problem = alarm(why);
  answer.replaceChildren(problem);
  problem.focus();
}

export async function view() {
  const writing = await writingForm();
  if (!uploads && !hasUnseenProblem) for (const each of [said, answer]) each.replaceChildren();
  hasUnseenProblem = false;
  const input = element("input", {
    type: "file",
    id: newId("file"),
    accept: `${Object.keys(TYPES)
      .map((each) => `.${each}`)
      .join(",")},.gz`,
    class: "file",
    onchange: () => input.files.length && take(input.files[0]),
  });
  const take = async (file, options = writing.value()) => {
    input.value = "";
    if (!UPLOADED.includes(typeOf(file))) {
      refuse({ title: "This file cannot be read", message: OTHER_PROGRAMS[suffixOf(file)] ?? OTHER_FILE });
      return;
    }
    const csv = typeOf(file) === "text/csv";
    const first = csv ? await checkFirstLine(file, options).catch(() => null) : null;
    await ask(file, first?.found ?? options, first);
  };
  takeHere = take;
  const ask = async (file, options, first) => {
    const on = (more) => ask(file, { ...options, ...more }, first);
    if (first?.why && options.header === undefined) answer.replaceChildren(headerQuestion(first, file, on));
    else if (first?.comma && options.decimal_mark === undefined) answer.replaceChildren(commaQuestion(first, file, on));
    else await send(file, options);
  };
  const send = async (file, options) => {
    const proceed = navigateUnlessLeft();
    answer.replaceChildren();
    uploads += 1;
    sample.disabled = true; // a second click would make a second table
    const sent = new AbortController();
    const { signal } = sent;
    addEventListener("beforeunload", (event) => event.preventDefault(), { signal }); // a reload would end the upload
    said.replaceChildren(
      element("p", {}, "Uploading ", named(file.name), " …"),
      element("progress", { "aria-label": "Upload" }),
    );
    try {
      const buffer = await upload(file, options);
      session.remember(buffer, file.name, options);
      await keepName(buffer, file.name);
      const follows = proceed("tables", buffer.id) !== false;
      const link = element("a", { href: routeHref("tables", buffer.id) }, named(file.name));
      said.replaceChildren(element("p", {}, "Uploaded: ", link, follows ? ". Its page follows." : "."));
    } catch (thrown) {
      const error = thrown.status === 0 ? await readingProblem(file, thrown) : thrown;
      const problem = alarm(inForm(error, writing.parts));
      said.replaceChildren();
      answer.replaceChildren(problem);
      sample.disabled = false;
      point(writing.parts, error.errors ?? []);
      if (error.status === 422 && typeOf(file) === "text/csv") {
        written.open = true;
        problem.append(element("p", {}, "If “How the CSV is written”, above, does not fit the file, correct it there and send the file again. Excel in Western Europe writes windows-1252, unless “CSV UTF-8” is chosen."));
        problem.append(sendAgain(() => takeHere(file)));
      } else if (isPassing(error)) {
        problem.append(element("p", {}, named(file.name), " and what you stated about it are kept. If only the answer was lost, sending it again makes no second table."));
        problem.append(sendAgain(() => send(file, options)));
      }
      hasUnseenProblem = !answer.isConnected;
      problem.focus();
    } finally {
      uploads -= 1;
      sent.abort();
    }
  };
  const sample = element(
    "button",
    { type: "button", onclick: () => take(new File([people()], "people.csv", { lastModified: 0 }), {}) },
    "Try with made-up people",
  );
  const written = element(
    "details",
    { class: "more" },
    element("summary", {}, "How the CSV is written"),
    writing.node,
  );
  const zone = element(
    "div",
    {
      class: "drop",
      ondragover: (event) => {
        event.preventDefault();
        zone.classList.add("over");
      },
      ondragleave: () => zone.classList.remove("over"),
      ondrop: (event) => {
        event.preventDefault();
        zone.classList.remove("over");
        const [file, ...others] = event.dataTransfer.files;
        if (others.length) refuse({ title: "Several files", message: SEVERAL_FILES });
        else if (file) take(file);
      },
    },
    element("label", { for: input.id }, "A file: CSV, Parquet, or an Arrow stream"),
    input,
    element(
      "p",
      { class: "quiet" },
      "Choose it, or drop it here. It is stored encrypted, and deleted at its expiry.",
    ),
    written,
  );
  return {
    help: "console",
    title: "Tables",
    nodes: [
      element("h1", { tabindex: "-1" }, "Protect a table"),
      element(
        "p",
        { class: "lead" },
        "Values move between rows, so that nobody can be sure of having found a person, and the table stays useful. First: which table?",
      ),
      zone,
      said,
      answer,
      element(
        "section",
        { class: "panel", "aria-labelledby": "try" },
        element("h2", { id: "try" }, "No table at hand?"),
        element("p", {}, "A thousand people who do not exist, made up in this browser."),
        sample,
      ),
      tableList(),
    ],
  };
}

/** Creates the form of upload options from the query parameters in the OpenAPI document. */
async function writingForm() {
  const document = await api.contract();
  const { parameters } = document.paths["/v1/buffers"].post;
  const query = parameters.filter((each) => each.in === "query" && !ANNOTATIONS.includes(each.name));
  const properties = Object.fromEntries(
    query.map(({ name, schema, description }) => [name, { description, ...schema }]),
  );
  return form({ properties }, { document, fields: [] }, { allInTheOpen: true });
}

/** Whether the same upload may succeed later: there was no response, no key, too many requests, or a failure of the service. */
const isPassing = ({ status }) => status === 0 || status === 401 || status === 429 || status >= 500;

const sendAgain = (send) => element("button", { type: "button", onclick: send }, "Send the file again");

const suffixOf = (file) => {
  const parts = file.name.toLowerCase().split(".");
  return parts.at(parts.at(-1) === "gz" ? -2 : -1);
};

const typeOf = (file) => TYPES[suffixOf(file)] ?? file.type;

const createOnce = api.once();

/** Uploads the file and returns its buffer. The same file after a lost response makes no second one. */
async function upload(file, options) {
  const zipped = /\.gz$/i.test(file.name);
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options))
    [value].flat().forEach((each) => query.append(name, each));
  const headers = { "content-type": typeOf(file), ...(zipped ? { "content-encoding": "gzip" } : {}) };
  const identity = [file.name, file.size, file.lastModified, `${query}`].join("\n");
  return createOnce(identity, async (key) =>
    api.json(await api.send("POST", `v1/buffers?${query}`, { body: file, headers: { ...headers, ...key } })),
  );
}

/** Returns why an upload had no response: the browser stops one whose file has changed, as if the service were gone. */
async function readingProblem(file, error) {
  const isReadable = await file.slice(0, 1).arrayBuffer().then(() => true, () => false);
  if (isReadable) return error;
  return { title: "The file cannot be read", message: "It was changed, moved or deleted after it was chosen, or it is a folder. Choose it again." };
}

/** Stores the file's name as the table's. It may name a person, so it is not sent in the address of the upload. */
async function keepName({ id }, name) {
  const path = `v1/buffers/${encodeURIComponent(id)}`;
  await api.patch(path, { name: name.slice(0, MOST_OF_A_NAME) }).catch(() => {}); // else only this tab knows it
}

/** Creates a question about a file with two answers, [words, options]; the first one has the focus. */
function question(title, inside, answers, on) {
  const id = newId("doubt");
  const [first, second] = answers.map(([words, options], at) =>
    element("button", { type: "button", class: at ? null : "primary", onclick: () => on(options) }, words),
  );
  queueMicrotask(() => first.focus());
  return element(
    "section",
    { class: "warning", "aria-labelledby": id, tabindex: "-1" },
    element("h2", { id }, title),
    inside,
    element("div", { class: "actions" }, first, second),
  );
}

/** Creates the question whether the first line, which looks like data, has the names of the fields. */
const headerQuestion = ({ cells, why }, file, on) =>
  question(
    "Is the header missing?",
    [
      element("p", {}, "The first line of ", named(file.name), ` looks like data: ${why}.`),
      element(
        "p",
        { class: "first-line" },
        cells.flatMap((cell, at) => [at ? " | " : "", cell === null ? "null" : named(cell)]),
      ),
      element("p", {}, "Without a header the fields are named column_1, column_2, and so on, and no row is lost."),
    ],
    [
      ["There is no header: the first line is data", { header: false }],
      ["The first line has the names of the fields", { header: true }],
    ],
    on,
  );

/** Creates the question whether a comma is the decimal mark, or separates, say, the codes of two answers. */
const commaQuestion = ({ comma }, file, on) =>
  question(
    "Is the comma a decimal mark?",
    element("p", {}, "Cells of ", named(file.name), ` look like ${comma}.`),
    [
      [`Yes: ${comma} is a number`, { decimal_mark: "comma" }],
      [`No: ${comma} is a text`, { decimal_mark: "point" }],
    ],
    on,
  );

const cards = (tables) =>
  element(
    "ul",
    { class: "cards" },
    tables.map((one) =>
      element(
        "li",
        {},
        element("a", { href: `#/tables/${encodeURIComponent(one.id)}` }, named(one.name ?? one.id)),
        element("small", {}, ` ${counted(one.row_count, "row")}, until ${moment(one.expires_at)}`),
      ),
    ),
  );

/** Creates the search for tables that other tabs have uploaded. */
function finder(isOpen) {
  const said = element("p", { class: "quiet", role: "status" });
  const holder = element("div", {});
  const find = async (wanted) => {
    const given = Object.entries(wanted).filter(([, value]) => value);
    const query = new URLSearchParams([...given, ["page_size", MOST_FOUND]]);
    try {
      const { buffers, next_page_token: more } = await api.get(`v1/buffers?${query}`);
      const words = more ? `The newest ${MOST_FOUND}; there are more.` : counted(buffers.length, "table");
      said.textContent = words;
      holder.replaceChildren(cards(buffers));
    } catch (error) {
      said.textContent = "";
      holder.replaceChildren(alarm(error));
    }
  };
  return element(
    "details",
    { class: "more", open: isOpen },
    element("summary", {}, "Find a table of another tab"),
    searchOf("Tables", {}, find),
    said,
    holder,
  );
}

/** Lists the tables of this tab, with an input to open another one by id. */
function tableList() {
  const tables = session.tables();
  const id = element("input", { id: newId("id"), type: "text", autocomplete: "off", spellcheck: "false" });
  return element(
    "section",
    { class: "panel", "aria-labelledby": "known" },
    element("h2", { id: "known" }, "Uploaded before"),
    tables.length ? cards(tables) : element("p", { class: "quiet" }, "None in this tab."),
    finder(!tables.length),
    element(
      "form",
      {
        class: "inline",
        onsubmit: (event) => {
          event.preventDefault();
          if (id.value.trim()) navigate("tables", id.value.trim());
        },
      },
      element("label", { for: id.id }, "Or by a buffer's id"),
      id,
      element("button", {}, "Open"),
    ),
  );
}
