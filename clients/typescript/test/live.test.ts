/** Against a live service, whose address is in ROWVEIL_URL and whose key, if it wants one, in ROWVEIL_API_KEY. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { type Job, rows, rowveil, upload, watch } from "../src/index.js";

const url = process.env.ROWVEIL_URL;
if (!url) throw new Error("ROWVEIL_URL is not set");
const client = rowveil(url, process.env.ROWVEIL_API_KEY);

const cities = ["Athens", "Dublin", "Zurich"];
const people = Array.from({ length: 60 }, (_, row) => ({
  age: 18 + ((row * 37) % 70),
  income: 20000 + ((row * 7919) % 50000) + 0.5,
  city: cities[row % 3] as string,
}));
const source = { rows: people };
const seed = "8f1c7a0b52e94d63";

function ended(answer: { data?: Job; error?: { detail: string } }): Job {
  assert.equal(answer.error?.detail, undefined);
  assert.equal(answer.data?.state, "succeeded");
  assert.equal(answer.data.destination?.rows?.length, people.length);
  return answer.data;
}

// Each with parameters of its own type: a wrong name does not compile.
const swap_fields = ["income"];
const services = {
  DSWAP: () => client.POST("/v1/services/DSWAP", { body: { source, seed, parameters: { swap_fields } } }),
  CDSWAP: () =>
    client.POST("/v1/services/CDSWAP", {
      body: { source, seed, parameters: { swap_fields, control_field: "city" } },
    }),
  DDSWAP: () =>
    client.POST("/v1/services/DDSWAP", {
      body: { source, seed, parameters: { swap_fields, control_field: "age", block_size: 5 } },
    }),
  MEWS: () =>
    client.POST("/v1/services/MEWS", {
      body: { source, seed, parameters: { swap_fields: ["age", "income"], bins: 3 } },
    }),
  MEDS: () =>
    client.POST("/v1/services/MEDS", {
      body: { source, seed, parameters: { swap_fields: ["age", "income"], k: 6 } },
    }),
  RWN: () => client.POST("/v1/services/RWN", { body: { source, seed, parameters: { k: 4 } } }),
  PABIDOT: () =>
    client.POST("/v1/services/PABIDOT", { body: { source, seed, parameters: { label_fields: ["city"] } } }),
  LOCALITY: () =>
    client.POST("/v1/services/LOCALITY", { body: { source, seed, parameters: { fields: ["age"] } } }),
  RSWAP: () =>
    client.POST("/v1/services/RSWAP", {
      body: { source, seed, parameters: { hierarchy: ["city"], similar: [["age"]], swap_rate: 0.5 } },
    }),
};

test("all services run", async () => {
  for (const [service, run] of Object.entries(services)) {
    assert.equal(ended(await run()).service, service);
  }
});

// The parameters that surveys need; a wrong name or value of one does not compile.
const risk = { key_fields: ["age"], k: 2 };
const surveys = {
  risk: () =>
    client.POST("/v1/services/DSWAP", { body: { source, seed, parameters: { swap_fields, rate: 0.3, risk } } }),
  household: () =>
    client.POST("/v1/services/DSWAP", { body: { source, seed, parameters: { swap_fields, household: "age" } } }),
  repair: () =>
    client.POST("/v1/services/DSWAP", {
      body: {
        source,
        seed,
        parameters: { swap_fields, checks: ["income >= 0 or age > 18"], on_broken: "repair" },
      },
    }),
  "weight classes": () =>
    client.POST("/v1/services/CDSWAP", {
      body: {
        source,
        seed,
        parameters: {
          swap_fields: ["city"],
          control_field: "income",
          classifier: { quantiles: 3 },
          household_check: "age",
        },
      },
    }),
  permutation: () =>
    client.POST("/v1/services/DDSWAP", {
      body: {
        source,
        seed,
        parameters: {
          swap_fields,
          control_field: "age",
          block_size: 10,
          mechanism: "permutation",
          target_epsilon: 4,
        },
      },
    }),
};

test("the parameters that surveys need have types", async () => {
  for (const run of Object.values(surveys)) ended(await run());
  const released = ended(await surveys.risk());
  assert.deepEqual(released.parameters.risk, risk);
  const attacked = await client.POST("/v1/attacks", {
    body: { source, job: released.id, known: ["age", "city"], secret: ["income"], attacks: 20, seed },
    params: { header: { Prefer: "wait=60" } },
  });
  assert.equal(attacked.error?.detail, undefined);
  const found = attacked.data?.report?.attacks?.reidentification;
  assert.equal(found?.income?.details?.selection_by_risk, true);
});

test("jobs and tables are named, found by a label, and renamed", async () => {
  const label = crypto.randomUUID();
  const buffer = await upload(client, "age\n31\n47\n", "text/csv", { name: "People", label });
  assert.deepEqual([buffer.data?.name, buffer.data?.label], ["People", label]);
  const buffer_id = buffer.data?.id as string;
  const path = { params: { path: { buffer_id } } };
  const noted = await client.PATCH("/v1/buffers/{buffer_id}", { ...path, body: { notes: "two people" } });
  assert.equal(noted.data?.notes, "two people");
  const job = ended(
    await client.POST("/v1/services/DSWAP", {
      body: { source, seed, parameters: { swap_fields }, name: "First", label },
    }),
  );
  await client.PATCH("/v1/jobs/{job_id}", { params: { path: { job_id: job.id } }, body: { name: "Renamed" } });
  const found = await client.GET("/v1/jobs", { params: { query: { label, name: "rename" } } });
  assert.deepEqual(
    found.data?.jobs.map((one) => [one.id, one.name]),
    [[job.id, "Renamed"]],
  );
  assert.equal((await client.DELETE("/v1/buffers/{buffer_id}", path)).response.status, 204);
});

test("a CSV becomes a Parquet file, which is uploaded, and both tables are equal", async () => {
  const csv = ["age,income,city", ...people.map((one) => `${one.age},${one.income},${one.city}`)].join("\n");
  const first = await upload(client, new Blob([csv]), "text/csv", { delimiter: ",", label: "files" });
  const id = first.data?.id as string;
  const file = await client.GET("/v1/buffers/{buffer_id}/rows", {
    params: { path: { buffer_id: id } },
    headers: { Accept: "application/vnd.apache.parquet" },
    parseAs: "arrayBuffer",
  });
  const bytes = new Uint8Array(file.data as unknown as ArrayBuffer);
  assert.equal(new TextDecoder().decode(bytes.slice(0, 4)), "PAR1");
  const second = await upload(client, bytes, "application/vnd.apache.parquet");
  assert.equal(second.data?.digest, first.data?.digest);
  assert.equal(second.data?.row_count, people.length);
});

test("a table is uploaded, swapped while it is watched, and fetched", async () => {
  const csv = ["age,city", ...people.map((one) => `${one.age},${one.city}`)].join("\n");
  const buffer = await upload(client, csv, "text/csv");
  assert.equal(buffer.data?.row_count, people.length);
  const accepted = await client.POST("/v1/services/CDSWAP", {
    body: {
      source: { buffer: buffer.data.id },
      parameters: { swap_fields: ["age"], control_field: "city" },
    },
    params: { header: { Prefer: "respond-async" } },
  });
  assert.equal(accepted.response.status, 202);
  const job = accepted.data as Job;
  const states = [];
  for await (const update of watch(client, job.id)) states.push(update.state);
  assert.equal(states.at(-1), "succeeded");
  const released = await rows(client, job.id, "text/csv");
  const lines = new TextDecoder().decode(released.data).trim().split("\n");
  assert.equal(lines.length, people.length + 1);
});

test("a call waits for its job, and a rerun reproduces it", async () => {
  const first = ended(await services.CDSWAP());
  const again = await client.POST("/v1/jobs/{job_id}/rerun", {
    params: { path: { job_id: first.id }, header: { Prefer: "wait=60" } },
    body: { source },
  });
  assert.equal(ended(again).reproduced, true);
  assert.equal(again.data?.destination?.digest, first.destination?.digest);
});

test("an error is a problem with its type", async () => {
  const { data, error, response } = await client.POST("/v1/services/DSWAP", {
    body: { source, parameters: { swap_fields: ["incom"] } },
  });
  assert.equal(data, undefined);
  assert.equal(response.status, 422);
  assert.equal(error?.code, "invalid_parameter");
  assert.equal(error.errors?.[0]?.pointer, "/parameters/swap_fields/0");
  const missing = await client.GET("/v1/jobs/{job_id}", { params: { path: { job_id: "none" } } });
  assert.equal(missing.error?.status, 404);
});
