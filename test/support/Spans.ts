/** Records every span that an effect opens, so that a test can say what is not in them. */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Tracer from "effect/Tracer"

export interface Recorded<A> {
  readonly value: A
  readonly spans: ReadonlyArray<Tracer.Span>
  /** All names, attributes and failures, as a tracer would show them. */
  readonly text: string
}

export const record = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<Recorded<A>, E, R> =>
  Effect.flatMap(Effect.tracer, (base) => {
    const spans: Array<Tracer.Span> = []
    const tracer = Tracer.make({
      span: (name, parent, context, links, startTime, kind, options) => {
        const span = base.span(name, parent, context, links, startTime, kind, options)
        spans.push(span)
        return span
      },
      context: (f, fiber) => base.context(f, fiber)
    })
    return Effect.map(Effect.withTracer(self, tracer), (value) => ({
      value,
      spans,
      text: JSON.stringify(
        spans.map((span) => [
          span.name,
          [...span.attributes],
          span.status._tag === "Ended" && Exit.isFailure(span.status.exit) ? Cause.pretty(span.status.exit.cause) : ""
        ]),
        (_, value: unknown) => (typeof value === "bigint" ? String(value) : value)
      )
    }))
  })
