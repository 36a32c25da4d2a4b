/** @internal */
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import type { CodeContext, CodeEvent, ExecdClient, ExecdEvent } from "../../Execd.js"
import * as Http from "../http/client.js"
import { nullish } from "../http/nullish.js"
import { check } from "../http/portCaller.js"
import type { Caller } from "./caller.js"
import { goneCounts } from "./caller.js"
import { runEvents } from "./events.js"

const Context = Schema.Struct({ id: nullish(Schema.String), language: nullish(Schema.String) })

const contextOf =
  (known: Partial<CodeContext> = {}) =>
  (wire: typeof Context.Type): CodeContext => ({
    id: wire.id ?? known.id ?? "",
    language: wire.language ?? known.language ?? ""
  })

/** execd calls the plain text of a result `text`. */
const mimeType = (key: string): string => (key === "text" ? "text/plain" : key)

const codeEvent = (event: { readonly [key: string]: unknown }): Exclude<CodeEvent, ExecdEvent> | undefined => {
  if (event.type === "execution_count") {
    return typeof event.execution_count === "number"
      ? { _tag: "ExecutionCount", count: event.execution_count }
      : undefined
  }
  if (event.type !== "result" || !Predicate.isRecord(event.results)) return undefined
  return {
    _tag: "Result",
    data: Object.fromEntries(Object.entries(event.results).map(([key, value]) => [mimeType(key), value]))
  }
}

const languageProblem = (language: string): string | undefined =>
  language === "" ? "the language is empty" : undefined

/** @internal */
export const makeCode = (
  caller: Caller
): Pick<
  ExecdClient,
  | "createCodeContext"
  | "codeContexts"
  | "codeContext"
  | "deleteCodeContext"
  | "deleteCodeContexts"
  | "runCode"
  | "interruptCode"
> => {
  const { get, remove, span, where, write } = caller

  const createCodeContext: ExecdClient["createCodeContext"] = (language) => {
    const at = where("createCodeContext")
    return check(at, languageProblem(language)).pipe(
      Effect.zipRight(
        write(
          at,
          "POST",
          "/code/context",
          () => ({ language }),
          Http.jsonBody(at, Schema.Struct({ ...Context.fields, id: Schema.NonEmptyString }))
        )
      ),
      Effect.map(contextOf({ language })),
      Effect.tap(({ id }) => Effect.annotateCurrentSpan("code.context.id", id)),
      span("createCodeContext", { "code.language": language })
    )
  }

  const codeContexts: ExecdClient["codeContexts"] = (language) => {
    const at = where("codeContexts")
    return check(at, languageProblem(language)).pipe(
      Effect.zipRight(
        get(at, "/code/contexts", [["language", language]], Http.jsonBody(at, Schema.NullOr(Schema.Array(Context))))
      ),
      Effect.map((list) => (list ?? []).map(contextOf({ language }))),
      span("codeContexts", { "code.language": language })
    )
  }

  const codeContext: ExecdClient["codeContext"] = (contextId) => {
    const at = where("codeContext")
    return Http.segment(at, "context id", contextId).pipe(
      Effect.flatMap((id) => get(at, `/code/contexts/${id}`, [], Http.jsonBody(at, Context))),
      Effect.map(contextOf({ id: contextId })),
      span("codeContext", { "code.context.id": contextId })
    )
  }

  const deleteCodeContext: ExecdClient["deleteCodeContext"] = (contextId) => {
    const at = where("deleteCodeContext")
    return Http.segment(at, "context id", contextId).pipe(
      Effect.flatMap((id) => remove(at, `/code/contexts/${id}`, [])),
      goneCounts,
      span("deleteCodeContext", { "code.context.id": contextId })
    )
  }

  const deleteCodeContexts: ExecdClient["deleteCodeContexts"] = (language) => {
    const at = where("deleteCodeContexts")
    return check(at, languageProblem(language)).pipe(
      Effect.zipRight(remove(at, "/code/contexts", [["language", language]])),
      span("deleteCodeContexts", { "code.language": language })
    )
  }

  const runCode: ExecdClient["runCode"] = (request) => {
    const at = where("runCode")
    const context = request.context
    return runEvents(
      caller,
      at,
      Effect.map(
        check(
          at,
          request.code === ""
            ? "the code is empty"
            : context?.id === ""
              ? "the context id is empty"
              : context === undefined
                ? undefined
                : languageProblem(context.language)
        ),
        () => ({
          path: "/code",
          body: () => ({
            code: request.code,
            context: context === undefined ? undefined : { id: context.id, language: context.language }
          }),
          frames: { lines: false, background: false, other: codeEvent },
          attributes: context === undefined ? {} : { "code.language": context.language }
        })
      )
    )
  }

  const interruptCode: ExecdClient["interruptCode"] = (contextId) => {
    const at = where("interruptCode")
    return check(at, contextId === "" ? "the context id is empty" : undefined).pipe(
      Effect.zipRight(remove(at, "/code", [["id", contextId]])),
      goneCounts,
      span("interruptCode", { "code.context.id": contextId })
    )
  }

  return {
    createCodeContext,
    codeContexts,
    codeContext,
    deleteCodeContext,
    deleteCodeContexts,
    runCode,
    interruptCode
  }
}
