// A program on the types that openapi-typescript makes: appends by compare-and-set, whole batches, reads.

import createClient from "openapi-fetch";
import type { components, paths } from "./fenceline.js";

declare const process: { argv: string[] };
type Problem = components["schemas"]["Problem"];

// Each member is there only where the code is one that has it.
function described(problem: Problem): string {
  switch (problem.code) {
    case "OFFSET_MISMATCH":
      return `${problem.code} ${problem.next_offset}`;
    case "INVALID_RECORD":
      return `${problem.code} ${problem.record_errors.length}`;
    default:
      return problem.code;
  }
}

function given<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("refused");
  return value;
}

const client = createClient<paths>({ baseUrl: process.argv[2] });
const place = (topic: string) => ({ path: { topic, partition: 0 } });
const records = (...values: string[]) => values.map((value) => ({ value }));
const append = "/v1/topics/{topic}/partitions/{partition}/records" as const;
const batches = "/v1/topics/{topic}/partitions/{partition}/batches" as const;

for (const name of ["orders", "copy"]) await client.POST("/v1/topics", { body: { name } });

const first = await client.POST(append, {
  params: place("orders"),
  body: { records: records("a"), expected_offset: 0 },
});
const appended: { base_offset: number; next_offset: number } = given(first.data);
console.log("appended", appended.base_offset, appended.next_offset);
const late = await client.POST(append, {
  params: place("orders"),
  body: { records: records("late"), expected_offset: 0 },
});
const refused: Problem = given(late.error);
if (refused.code !== "OFFSET_MISMATCH") throw new Error(refused.detail);
console.log("refused", described(refused));
const next: number = refused.next_offset;
const second = await client.POST(append, {
  params: place("orders"),
  body: { records: records("b", "c"), expected_offsets: [next, next + 1] },
});
console.log("appended", given(second.data).base_offset, given(second.data).next_offset);

const whole = await client.GET(batches, {
  params: { ...place("orders"), query: { offset: 0, max_records: 1 } },
  parseAs: "arrayBuffer",
});
const sent = await client.POST(batches, {
  params: { ...place("copy"), query: { expected_offset: 0 } },
  body: "",
  bodySerializer: () => given(whole.data),
  headers: { "content-type": "application/octet-stream" },
});
console.log("batch", whole.response.headers.get("fenceline-position"), given(sent.data).next_offset);

const several = await client.POST("/v1/produce", {
  body: {
    partitions: [
      { topic: "copy", partition: 0, records: records("d") },
      { topic: "nowhere", partition: 0, records: records("e") },
    ],
  },
});
const [landed, failed] = given(several.data).results;
console.log("several", landed.base_offset, described(given(failed.error)));

for (const topic of ["orders", "copy"]) {
  const page = await client.GET(append, { params: { ...place(topic), query: { offset: 0 } } });
  for (const record of given(page.data).records) {
    console.log(topic, record.offset, record.value, record.timestamp > 2 ** 32);
  }
}
const at = await client.GET("/v1/topics/{topic}/partitions/{partition}/offset-for-time", {
  params: { ...place("orders"), query: { timestamp: 1 } },
});
const offset: number | null = given(at.data).offset;
console.log("first at a time", offset);
