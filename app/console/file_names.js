// Names of downloaded files: table and service, such as `adult-CDSWAP.csv`.

import * as session from "./session.js";

const ENDINGS = /(\.(csv|tsv|txt|parquet|pq|arrows?|ipc))?(\.gz)?$/i;
const UNSAFE = /[^\p{L}\p{N}._ -]+/gu;
const MOST_CHARACTERS = 60;

/** Returns the name of a job's files without an ending: that of the table, else of the job, and the service. */
export function stemOf(job) {
  const table = session.tables().find((one) => one.digest === job.source.digest);
  const name = (table && table.name !== table.id ? table.name : (job.name ?? "rowveil"))
    .replace(ENDINGS, "")
    .replace(UNSAFE, "_")
    .slice(0, MOST_CHARACTERS);
  return `${name}-${job.service}`;
}
