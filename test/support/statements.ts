/** A tracer that keeps the text of every SQL statement that is run under it. */
import * as Tracer from "effect/Tracer"

export const recordStatements = () => {
  const statements: Array<string> = []
  const tracer = Tracer.make({
    context: (f) => f(),
    span: (name, parent, context, links, startTime, kind) => {
      const attributes = new Map<string, unknown>()
      return {
        _tag: "Span",
        name,
        spanId: "span",
        traceId: "trace",
        parent,
        context,
        status: { _tag: "Started", startTime },
        attributes,
        links,
        sampled: true,
        kind,
        end: () => undefined,
        attribute: (key, value) => {
          attributes.set(key, value)
          if (key === "db.query.text") {
            statements.push(String(value))
          }
        },
        event: () => undefined,
        addLinks: () => undefined
      }
    }
  })
  return { statements, tracer }
}
