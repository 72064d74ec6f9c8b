// The ids in the examples stand for a job, or a buffer, that this page makes when such a call is tried. So does
// the name of a series.

const JOB = "/v1/services/CDSWAP";
const SERIES_JOB = "/v1/services/DSWAP";
const LONG_JOB = "/v1/frontier"; // it has not ended when it is cancelled
const contract = fetch("openapi.json").then((answer) => answer.json());

async function withExample(request) {
  if (request.loadSpec) return request;
  const { paths } = await contract;
  const [job] = paths["/v1/jobs/{job_id}"].get.parameters;
  const [buffer] = paths["/v1/buffers/{buffer_id}"].get.parameters;
  if (request.url.includes(job.example)) {
    const long = request.url.endsWith("/cancel");
    const path = long ? LONG_JOB : JOB;
    const body = paths[path].post.requestBody.content["application/json"].example;
    const id = await made(request, path, "application/json", JSON.stringify(long ? { ...body, runs: 100 } : body), {
      Prefer: long ? "respond-async" : "wait=60",
    });
    request.url = request.url.replace(job.example, id);
  }
  if (request.url.includes(buffer.example)) {
    const table = await (await fetch("swagger/people.csv")).text();
    request.url = request.url.replace(buffer.example, await made(request, "/v1/buffers", "text/csv", table));
  }
  const [name] = paths["/v1/series/{name}"].get.parameters;
  if (request.url.endsWith(`/v1/series/${name.example}`)) {
    const body = paths[SERIES_JOB].post.requestBody.content["application/json"].example;
    const parameters = { ...body.parameters, unit_id: "age", series: name.example };
    await made(request, SERIES_JOB, "application/json", JSON.stringify({ ...body, parameters }), { Prefer: "wait=60" });
  }
  return request;
}

async function made(request, path, type, body, more = {}) {
  const headers = { "Content-Type": type, ...more };
  if (request.headers.Authorization) headers.Authorization = request.headers.Authorization;
  const answer = await fetch(path.slice(1), { method: "POST", headers, body });
  const document = await answer.json();
  if (!answer.ok) throw new Error(document.detail);
  return document.id;
}

/**
 * Plugin of Swagger UI: resolve an operation within the part of the document that it refers to.
 *
 * Swagger UI otherwise walks through the whole document for each operation that is opened: half a second. It
 * resolves every reference where it stands, and a report has nine tenths of the schema of a job. So the job's
 * responses, of which each operation of a service has two, name the operation that describes a report.
 */
function resolveInPart(system) {
  const { resolveSubtree } = system.fn;
  return { fn: { resolveSubtree: (document, path, options) => resolveSubtree(part(document, path), path, options) } };
}

/** Return a document with the value at `path`, and with the components to which it refers, also indirectly. */
function part(document, path) {
  const paths = [path];
  const found = new Set();
  const { securitySchemes } = document.components ?? {}; // operations name them without a reference
  const kept = { ...document, paths: {}, webhooks: {}, components: { securitySchemes } };
  while (paths.length) {
    const at = paths.pop();
    let value = at.reduce((parent, name) => parent?.[name], document);
    if (at.join("/") === "components/schemas/Job") value = withShortReport(value);
    place(kept, at, value);
    for (const [, pointer] of (JSON.stringify(value) ?? "").matchAll(/"#\/(components\/[^"\\]*)"/g)) {
      if (!found.has(pointer)) paths.push(pointer.split("/").map(unescaped));
      found.add(pointer);
    }
  }
  return kept;
}

/** Return the schema of a job with a report that refers to no other schema. */
function withShortReport(job) {
  const description = `${job.properties.report.description ?? ""} The operation getJobReport describes its members.`;
  return { ...job, properties: { ...job.properties, report: { type: "object", description: description.trim() } } };
}

/** Put a value into a document at a path, without changing any object that the document shares. */
function place(document, path, value) {
  let parent = document;
  for (const name of path.slice(0, -1)) parent = parent[name] = { ...parent[name] };
  parent[path.at(-1)] = value;
}

/** Return a name without the escapes of a JSON pointer in a URL. */
function unescaped(name) {
  return decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~");
}
