/** List of saved pipelines. */

import { glyph, h } from "./element.js";
import { PIPELINE } from "./glyphs.js";
import { Listing } from "./listing.js";
import { kindOf } from "./parameter.js";
import { pipelineAddress } from "./links.js";
import { ago } from "./format.js";

/** @param {import("./api.js").Api} api */
export function pipelines(api) {
  return new Listing(api, {
    path: "/v1/pipelines",
    title: "Pipelines",
    lead: "Saved plans, which you can run on other files.",
    none: "There are no pipelines yet. Send a request, and choose “Save this plan” when the run has ended.",
    key: ({ name, version }) => `${name} ${version}`,
    row: () => new PipelineRow(),
    moves: () => false,
  });
}

class PipelineRow {
  constructor() {
    this.element = h("li");
  }

  /** @param {import("../types.js").Pipeline} pipeline */
  show(pipeline) {
    const steps = (pipeline.plan || []).map(({ task }) => task).join(" · ");
    this.element.replaceChildren(
      h(
        "a.entry",
        { href: pipelineAddress({ name: pipeline.name }) },
        glyph(PIPELINE),
        h(
          "span.entry-words",
          {},
          h("strong", {}, pipeline.name),
          pipeline.description && h("span", {}, pipeline.description),
          h("small", {}, [takes(pipeline), steps].filter(Boolean).join(" → ")),
        ),
        h("small", {}, [`version ${pipeline.version}`, pipeline.create_time && ago(pipeline.create_time)].join(", ")),
      ),
    );
  }
}

/** @param {import("../types.js").Pipeline} pipeline */
function takes(pipeline) {
  return (pipeline.inputs || []).map((port) => kindOf(port).one).join(", ");
}
