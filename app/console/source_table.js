// Table of a job's source in this tab: uploaded here, or found among the newest tables that the service keeps.

import * as api from "./api.js";
import * as session from "./session.js";

const NEWEST = 200;

/** Remembers the table of a job's source if this tab does not know it and the service still has it. */
export async function findSource({ source: { digest } }) {
  if (session.tables().some((one) => one.digest === digest)) return;
  const { buffers } = await api.get(`v1/buffers?page_size=${NEWEST}`).catch(() => ({ buffers: [] }));
  const found = buffers.find((one) => one.digest === digest);
  if (found) session.remember(found, found.name);
}
