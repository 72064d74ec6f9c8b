// First view: upload a table, use the sample table, or open one of this tab's tables.

import * as api from "../api.js";
import { alarm, element, named, newId } from "../dom.js";
import { form } from "../form.js";
import { navigate } from "../router.js";
import { people } from "../sample_table.js";
import * as session from "../session.js";
import { counted, moment } from "../format.js";

const TYPES = {
  csv: "text/csv",
  tsv: "text/csv",
  txt: "text/csv",
  parquet: "application/vnd.apache.parquet",
  pq: "application/vnd.apache.parquet",
  arrow: "application/vnd.apache.arrow.stream",
  arrows: "application/vnd.apache.arrow.stream",
  ipc: "application/vnd.apache.arrow.stream",
};
const DELIMITERS = [",", ";", "\t", "|"];
const LOOKED_AT = 20_000;

export async function view() {
  const writing = await writingForm();
  const said = element("div", { "aria-live": "polite" });
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
    said.replaceChildren(
      element("p", {}, "Uploading ", named(file.name), " …"),
      element("progress", { "aria-label": "Upload" }),
    );
    try {
      const buffer = await upload(file, options);
      session.remember(buffer, file.name);
      navigate("tables", buffer.id);
    } catch (error) {
      const problem = alarm(error);
      said.replaceChildren(problem);
      problem.focus();
    }
    input.value = "";
  };
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
        if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
      },
    },
    element("label", { for: input.id }, "A file: CSV with a header line, Parquet, or an Arrow stream"),
    input,
    element(
      "p",
      { class: "quiet" },
      "Choose it, or drop it here. It is stored encrypted, and deleted at its expiry.",
    ),
    element("details", { class: "more" }, element("summary", {}, "How the CSV is written"), writing.node),
  );
  return {
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
      element(
        "section",
        { class: "panel", "aria-labelledby": "try" },
        element("h2", { id: "try" }, "No table at hand?"),
        element("p", {}, "A thousand people who do not exist, made up in this browser."),
        element(
          "button",
          { type: "button", onclick: () => take(new File([people()], "people.csv"), {}) },
          "Try with made-up people",
        ),
      ),
      tableList(),
    ],
  };
}

/** Creates the form of upload options from the query parameters in the OpenAPI document. */
async function writingForm() {
  const document = await api.contract();
  const { parameters } = document.paths["/v1/buffers"].post;
  const query = parameters.filter((each) => each.in === "query");
  const properties = Object.fromEntries(
    query.map(({ name, schema, description }) => [name, { description, ...schema }]),
  );
  return form({ properties }, { document, fields: [] }, { allInTheOpen: true });
}

/** Uploads the file and returns its buffer. */
async function upload(file, options) {
  const parts = file.name.toLowerCase().split(".");
  const zipped = parts.at(-1) === "gz";
  const type = TYPES[parts.at(zipped ? -2 : -1)] ?? file.type;
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options))
    [value].flat().forEach((each) => query.append(name, each));
  if (type === "text/csv" && !options.delimiter && !zipped) query.set("delimiter", await delimiterOf(file));
  const headers = { "content-type": type, ...(zipped ? { "content-encoding": "gzip" } : {}) };
  return (await api.send("POST", `v1/buffers?${query}`, { body: file, headers })).json();
}

/** Returns the delimiter that is most frequent in the header line. */
async function delimiterOf(file) {
  const [names] = (await file.slice(0, LOOKED_AT).text()).split(/[\r\n]/);
  const often = (sign) => names.split(sign).length;
  return DELIMITERS.reduce((best, sign) => (often(sign) > often(best) ? sign : best));
}

/** Lists the tables of this tab, with an input to open another one by id. */
function tableList() {
  const tables = session.tables();
  const id = element("input", { id: newId("id"), type: "text", autocomplete: "off", spellcheck: "false" });
  return element(
    "section",
    { class: "panel", "aria-labelledby": "known" },
    element("h2", { id: "known" }, "Uploaded before"),
    tables.length
      ? element(
          "ul",
          { class: "cards" },
          tables.map((one) =>
            element(
              "li",
              {},
              element("a", { href: `#/tables/${encodeURIComponent(one.id)}` }, named(one.name)),
              element("small", {}, ` ${counted(one.row_count, "row")}, until ${moment(one.expires_at)}`),
            ),
          ),
        )
      : element("p", { class: "quiet" }, "None in this tab."),
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
