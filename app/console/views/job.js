// View of one job: live progress, result, report, files and rerun.

import * as api from "../api.js";
import { alarm, element, facts, newId, shown } from "../dom.js";
import { badge, nameOf } from "./jobs.js";
import { navigate, routeHref } from "../router.js";
import { reportOf } from "./report.js";
import * as session from "../session.js";
import { between, counted, moment, number, written } from "../format.js";

const OUTCOMES = {
  SUCCESS: "Everything was done as requested.",
  SUCCESS_WITH_INFO: "There are events:",
};
const FILES = {
  CSV: ["text/csv", "csv"],
  Parquet: ["application/vnd.apache.parquet", "parquet"],
  Arrow: ["application/vnd.apache.arrow.stream", "arrows"],
  JSON: [api.JSON_TYPE, "json"],
};

const pathOf = (id) => `v1/jobs/${encodeURIComponent(id)}`;
const hasEnded = (job) => !["queued", "running"].includes(job.state);

export async function view([id], signal) {
  const [first, services] = await Promise.all([api.get(pathOf(id)), api.listServices()]);
  const holder = element("div", {});
  const title = nameOf(first, services);
  const show = async (job) => holder.replaceChildren(...(await ended(job)));
  if (hasEnded(first)) await show(first);
  else follow(id, first, holder, signal, show);
  return {
    title,
    nodes: [
      element(
        "p",
        { class: "kind" },
        element("a", { href: "#/jobs" }, "Jobs"),
        ` · ${moment(first.created_at)}`,
      ),
      element(
        "h1",
        { tabindex: "-1" },
        title,
        " ",
        first.kind === "swap" ? element("span", { class: "identifier" }, first.service) : null,
      ),
      holder,
    ],
  };
}

/** Shows progress until the job has ended, then its result. */
async function follow(id, first, holder, signal, show) {
  const bar = element("progress", { max: 1, value: first.progress.fraction, "aria-label": "Progress" });
  const stage = element("p", { "aria-live": "polite" });
  const showProgress = ({ state, progress }) => {
    bar.value = progress.fraction;
    const words = `${state === "queued" ? "Waiting for a free worker" : progress.stage} · ${Math.round(100 * progress.fraction)} %`;
    if (stage.textContent !== words) stage.textContent = words;
  };
  const said = element("div", {});
  const cancel = element(
    "button",
    {
      type: "button",
      class: "danger",
      onclick: async () => {
        cancel.disabled = true;
        said.replaceChildren();
        try {
          await api.post(`${pathOf(id)}/cancel`, {});
        } catch (error) {
          said.replaceChildren(alarm(error));
          cancel.disabled = false; // cancellation can be requested again
        }
      },
    },
    "Cancel",
  );
  showProgress(first);
  holder.replaceChildren(element("div", { class: "running" }, bar, stage, cancel, said));
  try {
    await api.watch(id, showProgress, signal);
    if (signal.aborted) return;
    const held = holder.contains(document.activeElement);
    await show(await api.get(pathOf(id), signal));
    if (held) holder.querySelector(".outcome").focus();
  } catch (error) {
    if (!signal.aborted) holder.append(alarm(error));
  }
}

async function ended(job) {
  const nodes = [
    element(
      "p",
      { class: `outcome ${job.state}`, role: "status", tabindex: "-1" },
      badge(job.state),
      " ",
      OUTCOMES[job.outcome],
    ),
    job.error ? alarm({ title: job.error.title, message: job.error.detail }) : null,
    happened(job),
    reproduced(job),
    facts([
      ["Rows", number(job.row_count)],
      ["Took", job.started_at ? between(job.started_at, job.finished_at) : null],
      ["Fingerprint of the seed", job.seed_fingerprint ? element("code", {}, job.seed_fingerprint) : null],
      ["Digest of the source", element("code", {}, job.source.digest)],
      [
        "Digest of the result",
        job.destination && job.kind === "swap" ? element("code", {}, job.destination.digest) : null,
      ],
    ]),
  ];
  if (job.state === "succeeded") nodes.push(files(job));
  nodes.push(parametersOf(job), rerun(job), removal(job));
  if (job.state === "succeeded") nodes.push(await reportOf(job));
  return nodes.filter(Boolean);
}

/** Lists events by code, with their count and the first message. */
function happened(job) {
  const counts = Object.entries(job.event_counts ?? {});
  if (!counts.length) return null;
  const first = (code) => job.events.find((event) => event.code === code);
  return element(
    "section",
    { class: "warning", "aria-label": "What happened" },
    element(
      "ul",
      {},
      counts.map(([code, count]) =>
        element(
          "li",
          {},
          element("code", {}, code),
          `, ${counted(count, "time")}`,
          first(code) ? `: ${shown(first(code).message)}` : "",
        ),
      ),
    ),
  );
}

function reproduced(job) {
  if (!job.rerun_of) return null;
  const first = element("a", { href: routeHref("jobs", job.rerun_of) }, "the first run");
  if (job.reproduced === true)
    return element("p", { class: "good" }, "Reproduced: the very bytes of ", first, ".");
  if (job.reproduced === false)
    return element("p", { class: "warning" }, "Not reproduced: other bytes than ", first, " gave.");
  return element("p", {}, "A rerun of ", first, ".");
}

function files(job) {
  const said = element("div", { "aria-live": "polite" });
  const escapes = element("input", { type: "checkbox", checked: true });
  const button = (words, path, type, name, primary) =>
    element(
      "button",
      {
        type: "button",
        class: primary ? "primary" : null,
        onclick: async () => {
          said.replaceChildren(element("p", { class: "quiet" }, `Fetching ${name} …`));
          try {
            await api.download(asked(path, type), type, name);
            said.replaceChildren(element("p", { class: "quiet" }, `Saved as ${name}.`));
          } catch (error) {
            said.replaceChildren(alarm(error));
          }
        },
      },
      words,
    );
  const asked = (path, type) =>
    type === "text/csv" && escapes.checked ? `${path}?csv_formulas=escape` : path;
  const path = pathOf(job.id);
  const stem = `rowveil-${job.id}`;
  return element(
    "section",
    { "aria-labelledby": "files" },
    element("h2", { id: "files" }, "Download"),
    element(
      "div",
      { class: "actions" },
      job.kind === "swap"
        ? Object.entries(FILES).map(([words, [type, ending]], index) =>
            button(`Result as ${words}`, `${path}/rows`, type, `${stem}.${ending}`, index === 0),
          )
        : [],
      button("Manifest", `${path}/manifest`, api.JSON_TYPE, `${stem}-manifest.json`),
      button("Report as a page", `${path}/report`, "text/html", `${stem}-report.html`),
      button("Report as JSON", `${path}/report`, api.JSON_TYPE, `${stem}-report.json`),
    ),
    job.kind === "swap"
      ? element(
          "label",
          {},
          escapes,
          " In the CSV, put an apostrophe before texts that a spreadsheet would compute as formulas. " +
            "A file to verify against the manifest needs them as they are.",
        )
      : null,
    said,
  );
}

function parametersOf(job) {
  const given = Object.entries({ ...job.parameters, ...job.options }).filter(([, value]) => value !== null);
  const table = session.tables().find((one) => one.digest === job.source.digest);
  return element(
    "details",
    {},
    element("summary", {}, "Parameters"),
    facts(given.map(([name, value]) => [element("code", {}, name), shown(written(value))])),
    table && job.kind === "swap"
      ? element(
          "button",
          {
            type: "button",
            onclick: () => {
              session.setDraft(job.service, job.parameters);
              navigate("tables", table.id, job.service);
            },
          },
          "Change them and run again",
        )
      : null,
  );
}

/** Reruns with the same parameters and the sealed seed, on the retained source or on a table. */
function rerun(job) {
  if (!hasEnded(job) || job.kind === "measures") return null;
  const tables = session.tables();
  const same = tables.find((one) => one.digest === job.source.digest);
  const source = element(
    "select",
    { id: newId("source") },
    element("option", { value: "" }, "its own source, while it is kept"),
    tables.map((one) =>
      element(
        "option",
        { value: one.id },
        `${shown(one.name)}, ${counted(one.row_count, "row")}${one === same ? " (the same rows)" : ""}`,
      ),
    ),
  );
  source.value = same?.id ?? "";
  const said = element("div", { "aria-live": "polite" });
  const submit = async (event) => {
    event.preventDefault();
    said.replaceChildren(element("p", { class: "quiet" }, "Submitting …"));
    try {
      const body = source.value ? { source: { buffer: source.value } } : {};
      const made = await api.post(`${pathOf(job.id)}/rerun`, body, { prefer: "respond-async" });
      navigate("jobs", made.id);
    } catch (error) {
      said.replaceChildren(alarm(error));
    }
  };
  return element(
    "section",
    { "aria-labelledby": "rerun", class: "panel" },
    element("h2", { id: "rerun" }, "Run again"),
    element(
      "p",
      {},
      "A rerun takes the same parameters and the same sealed seed, and must give the same bytes.",
    ),
    element(
      "form",
      { class: "inline", onsubmit: submit },
      element("label", { for: source.id }, "On"),
      source,
      element("button", {}, "Run again"),
    ),
    said,
  );
}

function removal(job) {
  const said = element("div", {});
  const remove = element(
    "button",
    {
      type: "button",
      class: "danger",
      onclick: async () => {
        if (remove.dataset.asked) {
          await api.send("DELETE", pathOf(job.id)).then(
            () => navigate("jobs"),
            (error) => said.replaceChildren(alarm(error)),
          );
          return;
        }
        remove.dataset.asked = "yes";
        remove.textContent = "Delete it now, with its result and its seed";
      },
    },
    "Delete this job",
  );
  return element(
    "details",
    {},
    element("summary", {}, "Delete this job"),
    element("p", {}, "Its result, its report and its seed are deleted for good; a line of the audit remains."),
    remove,
    said,
  );
}
