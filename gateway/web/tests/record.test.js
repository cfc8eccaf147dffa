// The page's fold of run events, on recorded logs: it ends in the Run object that the API returns.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { RunRecord, model, references, seconds } from "../site/record.js";

const LOGS = new URL("../../../tests/data/event_logs/", import.meta.url);
const NAMES = readdirSync(LOGS)
  .filter((name) => name.endsWith(".jsonl"))
  .map((name) => name.replace(".jsonl", ""));

function events(name) {
  return readFileSync(new URL(`${name}.jsonl`, LOGS), "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
}

function folded(name, count = Infinity) {
  const [first] = events(name);
  const record = new RunRecord(first.run_id);
  events(name)
    .slice(0, count)
    .forEach((event) => record.apply(event));
  return record;
}

function run(name) {
  return JSON.parse(readFileSync(new URL(`${name}.run.json`, LOGS), "utf8"));
}

for (const name of NAMES) {
  test(`state of the ${name} run is that of its Run object`, () => {
    assert.equal(folded(name).state, run(name).state);
  });

  test(`tasks of the ${name} run are those of its Run object`, () => {
    const tasks = [...folded(name).tasks.values()].map(({ task, state, result }) => ({ task, state, result }));
    assert.deepEqual(
      tasks,
      run(name).tasks.map(({ task, state, result }) => ({ task, state, result })),
    );
  });

  test(`answer of the ${name} run is that of its Run object`, () => {
    assert.equal(folded(name).answer, run(name).answer ?? "");
  });

  test(`failure of the ${name} run is that of its Run object`, () => {
    assert.deepEqual(folded(name).failure, run(name).failure ?? null);
  });

  test(`notes of the ${name} run are those of its Run object`, () => {
    assert.deepEqual(folded(name).notes, run(name).notes);
  });

  test(`request and files of the ${name} run are those of its Run object`, () => {
    assert.deepEqual(folded(name).spec, run(name).spec);
  });

  test(`times of the ${name} run are those of its Run object`, () => {
    assert.equal(folded(name).began, Date.parse(run(name).create_time));
    assert.equal(folded(name).ended, Date.parse(run(name).end_time));
  });
}

test("run that waits for approval is not over", () => {
  const at = events("approved").findIndex((event) => "approval_requested" in event);
  const record = folded("approved", at + 1);
  assert.equal(record.state, "awaiting_approval");
  assert.equal(record.over, false);
});

test("running task has an attempt, a model and a duration", () => {
  const at = events("completed").findIndex((event) => "task_started" in event);
  const record = folded("completed", at + 1);
  const task = record.tasks.get(1);
  assert.equal(task.state, "running");
  assert.equal(model(task), "rapidocr");
  assert.equal(seconds(task, task.attempts[0].began + 1500), 1.5);
});

test("failed tasks name the files that they depend on", () => {
  assert.deepEqual(folded("failed").failedTasks, [{ task: "image-to-text", files: ["broken.png"] }]);
});

test("files of a task are found through the tasks before it", () => {
  const record = folded("failed");
  record.tasks.get(2).state = "failed";
  assert.deepEqual(record.failedTasks.at(-1), { task: "text-to-speech", files: ["broken.png"] });
});

test("artifacts are inputs and outputs without duplicates", () => {
  assert.deepEqual(
    [...folded("completed").artifacts.values()].map(({ name }) => name),
    ["sign.png", "speech.wav"],
  );
});

test("events of unknown tasks and kinds are ignored", () => {
  const record = new RunRecord("r");
  record.apply({ time: "2030-01-01T00:00:00Z", task_id: 9, task_started: { by: {} } });
  record.apply({ time: "2030-01-01T00:00:01Z", task_id: 0, something_new: {} });
  assert.equal(record.tasks.size, 0);
});

test("references are found at any depth", () => {
  const argument = [{ input: "a" }, [{ task_id: 1, output: "text" }], "text", null, 3];
  assert.deepEqual(references(argument), [{ input: "a" }, { task_id: 1, output: "text" }]);
});
