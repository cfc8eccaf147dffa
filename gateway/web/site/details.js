/** Details of each task: model and reason, attempts, inputs and outputs. */

import { h } from "./element.js";
import { UNEXPLAINED, sentence, spoken, withoutCommands } from "./notice.js";
import { marks, overlay } from "./overlay.js";
import { model, references, seconds } from "./record.js";
import { badge } from "./state.js";
import { shown } from "./values.js";
import { duration } from "./format.js";

export class Details {
  /**
   * @param {import("./files.js").Files} files
   * @param {import("./api.js").Api} api
   */
  constructor(files, api) {
    this._files = files;
    this._api = api;
    this._known = new Map();
    this.element = h("div.details");
  }

  /** @param {import("./record.js").RunRecord} run */
  show(run) {
    for (const task of run.tasks.values()) {
      const known = this._known.get(task.id) || this._made(task);
      const state = JSON.stringify([task.state, task.candidates.length, task.attempts, task.waits.length, run.over]);
      if (known.state !== state) this._changed(known, state, task);
      const by = [model(task), taken(task, run.now)].filter(Boolean).join(" · ");
      if (known.by.textContent !== by) known.by.textContent = by;
      if (known.stale && known.element.open) this._fill(known, run, task);
      known.fill = () => known.stale && this._fill(known, run, task);
    }
    for (const [id, { element }] of this._known) if (!run.tasks.has(id)) (element.remove(), this._known.delete(id));
  }

  /** @param {number} id of the task to open and scroll to */
  open(id) {
    const known = this._known.get(id);
    if (!known) return;
    known.element.open = true;
    known.element.scrollIntoView({
      block: "nearest",
      behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
    });
    known.summary.focus({ preventScroll: true });
  }

  _changed(known, state, task) {
    Object.assign(known, { state, stale: true });
    known.summary.lastChild.replaceWith(badge(task.state));
  }

  _made(task) {
    const by = h("span.task-by");
    const known = {
      state: "",
      stale: true,
      by,
      summary: h("summary", {}, headline(task), by, h("span")),
      body: h("div.task-body"),
      fill: () => {},
    };
    known.element = h(
      "details.task-details",
      { id: `task-${task.id}`, toggle: () => known.element.open && known.fill() },
      known.summary,
      known.body,
    );
    this._known.set(task.id, known);
    this.element.append(known.element);
    return known;
  }

  _fill(known, run, task) {
    known.stale = false;
    const parts = [
      trouble(task),
      why(task),
      candidates(task),
      attempts(task, run.now),
      this._inputs(run, task),
      this._outputs(run, task),
      parameters(task),
    ];
    known.body.replaceChildren(...parts.filter(Boolean));
  }

  _inputs(run, task) {
    const ports = Object.entries(task.task.arguments || {});
    return ports.length
      ? part(
          "Inputs",
          h(
            "div.ports",
            {},
            ports.map(([name, argument]) => port(name, [...origin(run, argument), this._given(run, argument)])),
          ),
        )
      : null;
  }

  _given(run, argument) {
    if (Array.isArray(argument))
      return h(
        "div",
        {},
        argument.map((item) => this._given(run, item)),
      );
    const value = resolved(run, argument);
    if (value === undefined) return null;
    return value?.artifact ? this._files.chip(value.artifact) : shown(value, this._files);
  }

  _outputs(run, task) {
    const outputs = Object.entries(task.result?.outputs || {});
    if (!outputs.length) return null;
    const drawn = this._overlaid(run, task);
    return part(
      "Outputs",
      h(
        "div.ports",
        {},
        drawn && port("found", [drawn]),
        outputs.map(([name, value]) => port(name, [shown(value, this._files)])),
      ),
    );
  }

  /** The input image with detections or mask; null if the task has none. */
  _overlaid(run, task) {
    const picture = Object.values(task.task.arguments || {})
      .map((argument) => resolved(run, argument)?.artifact)
      .find((artifact) => artifact?.media_type.startsWith("image/"));
    const outputs = task.result.outputs;
    const found = marks(Object.values(outputs).filter((value) => !value?.artifact));
    const mask = outputs.mask?.artifact;
    if (!picture || !this._files.shows(picture) || (!found.length && !mask)) return null;
    return overlay(this._files, picture, found, mask ? this._api.address(mask) : null);
  }
}

function headline(task) {
  return [
    h("span.task-number", {}, task.id),
    h("span.task-name", {}, task.task.task, task.task.source && h("q", {}, task.task.source)),
  ];
}

function taken(task, now) {
  const took = seconds(task, now);
  return took === undefined ? "" : duration(took);
}

function trouble(task) {
  const failure = task.result?.failure;
  return failure
    ? h(
        "div.problem",
        {},
        h("p", {}, h("strong", {}, withoutCommands(failure.message || "") || UNEXPLAINED)),
        failure.remedy && h("p", {}, spoken(sentence(withoutCommands(failure.remedy)))),
      )
    : null;
}

function why(task) {
  if (!task.decision) return null;
  const by =
    {
      rank: "by ranking",
      llm: `by ${task.decision.llm_model || "an LLM"}`,
      pinned: "pinned by the plan",
      routed: "by the routing table",
    }[task.decision.controller] || task.decision.controller;
  const fell = task.decision.fell_back_because ? ` ${task.decision.fell_back_because}` : "";
  return part(
    "Why this model",
    h("p", {}, task.decision.reason || "No reason given.", " ", h("small", {}, `Chosen ${by}.${fell}`)),
  );
}

function candidates(task) {
  if (task.candidates.length < 2) return null;
  const row = (candidate) =>
    h(
      "tr",
      {},
      h("td", {}, candidate.model_id),
      h("td", {}, candidate.expert),
      h("td", {}, candidate.role || ""),
      h("td.number", {}, candidate.score),
      h("td", {}, candidate.reason || ""),
    );
  return part("Models considered", grid(["model", "expert", "role", "score", "reason"], task.candidates.map(row)));
}

function attempts(task, now) {
  if (!task.attempts.length) return null;
  const row = (attempt) => {
    const how = attempt.failure
      ? [attempt.failure.message, attempt.next && `next: ${attempt.next}`].filter(Boolean).join("; ")
      : attempt.ended
        ? "done"
        : attempt.progress?.message || "running";
    const by = `${attempt.by.model_id || ""}${attempt.by.revision ? ` @${attempt.by.revision.slice(0, 10)}` : ""}`;
    return h(
      "tr",
      {},
      h("td.number", {}, attempt.number),
      h("td", {}, by),
      h("td", {}, attempt.by.expert || ""),
      h("td.number", {}, duration(((attempt.ended ?? now) - attempt.began) / 1000)),
      h("td", {}, how),
    );
  };
  return part("Attempts", grid(["", "model", "expert", "duration", "outcome"], task.attempts.map(row)));
}

function parameters(task) {
  const given = task.task.parameters;
  return given && Object.keys(given).length
    ? part("Parameters", h("p.text", {}, h("code", {}, JSON.stringify(given))))
    : null;
}

function grid(columns, rows) {
  const head = h(
    "thead",
    {},
    h(
      "tr",
      {},
      columns.map((column) => h("th", { scope: "col" }, column || "no.")),
    ),
  );
  return h(
    "div.scroll",
    { tabindex: "0", role: "group", "aria-label": "Table" },
    h("table", {}, head, h("tbody", {}, rows)),
  );
}

function part(title, content) {
  return h("section.part", {}, h("h3", {}, title), content);
}

function port(name, content) {
  return h("div.port", {}, h("h4", {}, name), content);
}

function origin(run, argument) {
  return references(argument).map(({ task_id, output, input }) =>
    h(
      "small.origin",
      {},
      input
        ? run.origin(input)
        : `${output} of task ${task_id}, ${run.tasks.get(task_id)?.task.task || "a missing task"}`,
    ),
  );
}

function resolved(run, argument) {
  if (argument && typeof argument === "object" && "task_id" in argument)
    return run.tasks.get(argument.task_id)?.result?.outputs?.[argument.output];
  if (!argument || typeof argument !== "object" || !("input" in argument)) return argument;
  const input = (run.spec.inputs || []).find(({ name }) => name === argument.input);
  return input?.artifact
    ? { artifact: input.artifact }
    : (input?.text ?? (input && "json" in input ? { json: input.json } : undefined));
}
