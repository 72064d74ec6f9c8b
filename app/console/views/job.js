// View of one job: live progress, result, report, files and rerun.

import * as api from "../api.js";
import { annotationsOf } from "../annotations.js";
import { alarm, element, facts, named, newId, shown } from "../dom.js";
import { beforeAndAfterOf, openTable } from "./before_after.js";
import { deletion } from "../deletion.js";
import { stemOf } from "../file_names.js";
import { badge, nameOf, titleOf } from "./jobs.js";
import { ledgerHref } from "./ledger.js";
import { navigate, navigateUnlessLeft, routeHref } from "../router.js";
import { reportOf } from "./report.js";
import { rerun } from "./rerun.js";
import * as session from "../session.js";
import { findSource } from "../source_table.js";
import { between, counted, moment, number, written } from "../format.js";
import { figureWords, label } from "../words.js";

const OUTCOMES = {
  SUCCESS: "Everything was done as requested.",
  SUCCESS_WITH_INFO: "There are events, below.",
};
const FILES = {
  CSV: ["text/csv", "csv"],
  Parquet: ["application/vnd.apache.parquet", "parquet"],
  Arrow: ["application/vnd.apache.arrow.stream", "arrows"],
  JSON: [api.JSON_TYPE, "json"],
};

/** Delimiter and decimal mark of a downloaded CSV, and their words; the first are those of most programs. */
const STYLES = [
  [",", "point", "commas and 1234.5"],
  [";", "comma", "semicolons and 1234,5"],
  [";", "point", "semicolons and 1234.5"],
  ["tab", "comma", "tabs and 1234,5"],
  ["tab", "point", "tabs and 1234.5"],
  ["|", "comma", "vertical bars and 1234,5"],
  ["|", "point", "vertical bars and 1234.5"],
];

const OTHERS = 20;

const pathOf = (id) => `v1/jobs/${encodeURIComponent(id)}`;
const hasEnded = (job) => !["queued", "running"].includes(job.state);

export async function view([id], signal) {
  const [first, services, document] = await Promise.all([
    api.get(pathOf(id)),
    api.listServices(),
    api.contract(),
  ]);
  const holder = element("div", {});
  const announced = element("p", { class: "hidden-words", role: "status" });
  const title = element("span", {});
  const rename = (job) => title.replaceChildren(named(titleOf(job, services)));
  rename(first);
  const show = async (job) => holder.replaceChildren(...(await ended(job)));
  if (hasEnded(first)) await show(first);
  else follow(id, first, holder, announced, signal, show);
  return {
    help: "report",
    title: shown(titleOf(first, services)),
    nodes: [
      element(
        "p",
        { class: "kind" },
        element("a", { href: "#/jobs" }, "Jobs"),
        ` · ${moment(first.created_at)}`,
        first.name ? ` · ${nameOf(first, services)}` : "",
      ),
      element(
        "h1",
        { tabindex: "-1" },
        title,
        " ",
        first.kind === "swap" ? element("span", { class: "identifier" }, first.service) : null,
      ),
      annotationsOf(pathOf(id), first, document, rename),
      announced,
      holder,
    ],
  };
}

/** Returns a stage of a run with the title of the measure in place of its key. */
const stageWords = (stage) => stage.replace(/(?<=^measuring )[a-z_.]+$/, figureWords);

/** Changes a text only if it differs, so that screen readers announce it once. */
function setText(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

/**
 * Shows progress until the job has ended, then its result. `announced` is the live region of both: screen readers
 * announce the changes of a region that was there before, and not a new one.
 */
async function follow(id, first, holder, announced, signal, show) {
  const bar = element("progress", { max: 1, value: first.progress.fraction, "aria-label": "Progress" });
  const stage = element("p", {});
  const showProgress = ({ state, progress: { fraction, stage: at } }) => {
    bar.value = fraction;
    const words = state === "queued" ? "Waiting for a free worker" : stageWords(at);
    setText(stage, `${words} · ${Math.floor(100 * fraction)} %`);
    setText(announced, state === "queued" ? words : `${25 * Math.floor(4 * fraction)} %`); // each per cent would be a flood
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
  const unreachable = element("p", { role: "status" });
  const showUnreachable = (is) => {
    setText(unreachable, is ? "The service does not answer. This page tries again every second; the job is kept." : "");
  };
  showProgress(first);
  holder.replaceChildren(element("div", { class: "running" }, bar, stage, unreachable, cancel, said));
  try {
    await api.watch(id, showProgress, signal, showUnreachable);
    if (signal.aborted) return;
    const { activeElement: active, body } = document;
    const held = holder.contains(active) || (cancel.disabled && active === body); // disabled, it loses the focus
    await show(await api.get(pathOf(id), signal));
    const outcome = holder.querySelector(".outcome");
    if (held) outcome.focus(); // which reads it
    setText(announced, held ? "" : outcome.textContent);
  } catch (error) {
    if (!signal.aborted) holder.append(alarm(error));
  }
}

/** Verdict and pictures first, then what can be done with the result; at the end the record and the report. */
async function ended(job) {
  await findSource(job);
  const { first, last } = job.state === "succeeded" ? await reportOf(job) : { first: [], last: null };
  const nodes = [
    element(
      "p",
      { class: `outcome ${job.state}`, tabindex: "-1" },
      badge(job.state),
      " ",
      OUTCOMES[job.outcome],
    ),
    job.error ? alarm({ title: job.error.title, message: job.error.detail }) : null,
    reproduced(job),
    ...first,
    happened(job),
    beforeAndAfterOf(job),
  ];
  if (job.state === "succeeded") nodes.push(files(job), attacked(job));
  nodes.push(parametersOf(job), rerun(job), await pairingWith(job), record(job), removal(job), last);
  return nodes.filter(Boolean);
}

/** Describes the delivery of the message that notifies the webhook of the job's end. */
function delivered(webhook) {
  const attempts = webhook.attempts === 1 ? "1 attempt" : `${number(webhook.attempts)} attempts`;
  const cause = webhook.problem ? `: ${shown(webhook.problem)}` : "";
  if (webhook.state === "delivered") return `delivered ${moment(webhook.ended_at)}, ${attempts}`;
  if (webhook.state === "given_up") return `given up after ${attempts}${cause}`;
  if (!webhook.next_attempt_at) return "the message follows when the job has ended";
  return `not delivered yet, ${attempts}${cause}; next attempt ${moment(webhook.next_attempt_at)}`;
}

/** Lists what a rerun is compared with. */
function record(job) {
  return element(
    "section",
    { "aria-labelledby": "record" },
    element("h2", { id: "record" }, "For the record"),
    facts([
      ["Job", element("code", {}, job.id)],
      ["Rows", number(job.row_count)],
      ["Took", job.started_at ? between(job.started_at, job.finished_at) : null],
      ["Rows kept until", job.rows_expire_at ? moment(job.rows_expire_at) : null],
      ["Report kept until", job.expires_at ? moment(job.expires_at) : null],
      ["Fingerprint of the seed", job.seed_fingerprint ? element("code", {}, job.seed_fingerprint) : null],
      ["Digest of the source", element("code", {}, job.source.digest)],
      [
        "Digest of the result",
        job.destination && job.kind === "swap" ? element("code", {}, job.destination.digest) : null,
      ],
      [
        "Releases of the source",
        job.kind === "swap" ? element("a", { href: ledgerHref(job.source.digest) }, "In the ledger") : null,
      ],
      ["Webhook", job.webhook ? delivered(job.webhook) : null],
    ]),
  );
}

/** Lets the user choose another job to be shown next to this one; those of the same source come first. */
async function pairingWith(job) {
  if (!hasEnded(job)) return null;
  const [{ jobs }, services] = await Promise.all([
    api.get(`v1/jobs?${new URLSearchParams({ page_size: OTHERS, state: "succeeded" })}`),
    api.listServices(),
  ]);
  const isSame = (other) => other.source.digest === job.source.digest;
  const others = jobs
    .filter((other) => other.id !== job.id && other.kind === job.kind)
    .sort((one, other) => isSame(other) - isSame(one));
  if (!others.length) return null;
  const words = (other) =>
    `${shown(titleOf(other, services))}, ${moment(other.created_at, "medium")}${isSame(other) ? "" : " (of another table)"}`;
  const choice = element(
    "select",
    { id: newId("pair") },
    others.map((other) =>
      element("option", { value: other.id }, words(other)),
    ),
  );
  return element(
    "form",
    {
      class: "inline unprinted",
      onsubmit: (event) => {
        event.preventDefault();
        navigate("jobs", job.id, "pair", choice.value);
      },
    },
    element("label", { for: choice.id }, "Put next to"),
    choice,
    element("button", {}, "Show both"),
  );
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
          code === "released_before" ? [" ", element("a", { href: ledgerHref(job.source.digest) }, "See its releases"), "."] : [],
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

/** Creates the choice of delimiter and decimal mark; at first it has those of the job's table, as it was uploaded. */
function styleChoice(job) {
  const { csv } = session.tables().find((one) => one.csv && one.digest === job.source.digest) ?? {};
  const sign = csv?.delimiter === "\t" ? "tab" : csv?.delimiter;
  const uploaded = STYLES.findIndex(
    ([delimiter, mark]) => delimiter === sign && mark === (csv.decimal_mark ?? "point"),
  );
  return element(
    "select",
    { id: newId("style") },
    STYLES.map(([, , words], at) =>
      element(
        "option",
        { value: String(at), selected: at === Math.max(uploaded, 0) },
        `${words}${at === uploaded ? ", as in the table" : ""}`,
      ),
    ),
  );
}

function files(job) {
  const said = element("div", { "aria-live": "polite" });
  const escapes = element("input", { type: "checkbox", checked: true });
  const style = styleChoice(job);
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
  const asked = (path, type) => {
    if (type !== "text/csv") return path;
    const [delimiter, mark] = STYLES[style.value];
    const formulas = escapes.checked ? "escape" : "keep";
    return `${path}?${new URLSearchParams({ csv_formulas: formulas, csv_delimiter: delimiter, csv_decimal_mark: mark })}`;
  };
  const path = pathOf(job.id);
  const stem = stemOf(job);
  return element(
    "section",
    { "aria-labelledby": "files", class: "unprinted" },
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
      ? [
          element("div", { class: "control" }, element("label", { for: style.id }, "Cells and numbers of the CSV"), style),
          element(
            "label",
            {},
            escapes,
            " In the CSV, put an apostrophe before texts that a spreadsheet would compute as formulas. " +
              "A file to verify against the manifest needs the unchanged texts.",
          ),
        ]
      : null,
    said,
  );
}

/** Links a run to the attacks on its release, and attacks to the run. */
function attacked(job) {
  if (job.kind === "attacks" && job.parameters.job)
    return element(
      "p",
      {},
      "Attacked was ",
      element("a", { href: routeHref("jobs", job.parameters.job) }, "the release of this run"),
      ".",
    );
  if (job.kind !== "swap") return null;
  return element(
    "section",
    { "aria-labelledby": "attack", class: "unprinted" },
    element("h2", { id: "attack" }, "Is it safe?"),
    element(
      "p",
      {},
      element("a", { class: "button", href: routeHref("jobs", job.id, "attack") }, "Attack this release"),
      " before you publish it: could somebody find a person in it, or learn something about one?",
    ),
  );
}

function parametersOf(job) {
  const given = Object.entries({ ...job.parameters, ...job.options }).filter(([, value]) => value !== null);
  return element(
    "details",
    { class: "opens-in-print", open: job.state === "failed" },
    element("summary", {}, "Parameters"),
    facts(given.map(([name, value]) => [label(name), shown(written(value))])),
    job.kind === "swap" ? changing(job) : null,
  );
}

/** Creates the button that fills in the form of the service with the job's parameters and options. */
function changing(job) {
  const table = session.tables().find((one) => one.digest === job.source.digest);
  if (!table) return element("p", { class: "quiet unprinted" }, openTable(), " in this tab to change them and run again.");
  const start = () => {
    session.setDraft(job.service, { parameters: job.parameters, options: job.options });
    navigate("tables", table.id, job.service);
  };
  return element("button", { type: "button", onclick: start }, "Change them and run again");
}

function removal(job) {
  return element(
    "details",
    { class: "unprinted" },
    element("summary", {}, "Delete this job"),
    deletion(
      "Delete this job",
      "Its result, its report and its seed are deleted for good; a line of the audit remains.",
      async () => {
        const proceed = navigateUnlessLeft();
        await api.send("DELETE", pathOf(job.id));
        session.forgetEntries(job.id);
        proceed("jobs");
      },
    ),
  );
}
