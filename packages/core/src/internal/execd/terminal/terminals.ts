/** @internal */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { ExecdClient } from "../../../Execd.js"
import * as Http from "../../http/client.js"
import { nullish } from "../../http/nullish.js"
import type { Caller } from "../caller.js"
import { goneCounts } from "../caller.js"
import { attach } from "./attach.js"
import { attachReconnecting } from "./reconnect.js"

const Created = Schema.Struct({ session_id: Schema.NonEmptyString })

const Info = Schema.Struct({
  session_id: nullish(Schema.String),
  running: nullish(Schema.Boolean),
  output_offset: nullish(Schema.Number)
})

/** @internal */
export const makeTerminals = (
  caller: Caller
): Pick<ExecdClient, "createTerminal" | "terminal" | "deleteTerminal" | "attachTerminal"> => {
  const { get, remove, span, where, write } = caller

  const createTerminal: ExecdClient["createTerminal"] = (options = {}) => {
    const at = where("createTerminal")
    return write(
      at,
      "POST",
      "/pty",
      () => ({ cwd: options.cwd, command: options.command }),
      Http.jsonBody(at, Created)
    ).pipe(
      Effect.map(({ session_id }) => session_id),
      Effect.tap((id) => Effect.annotateCurrentSpan("terminal.id", id)),
      span("createTerminal")
    )
  }

  const terminal: ExecdClient["terminal"] = (terminalId) => {
    const at = where("terminal")
    return Http.segment(at, "terminal id", terminalId).pipe(
      Effect.flatMap((id) => get(at, `/pty/${id}`, [], Http.jsonBody(at, Info))),
      Effect.map((wire) => ({
        id: wire.session_id ?? terminalId,
        running: wire.running ?? false,
        outputOffset: wire.output_offset ?? 0
      })),
      span("terminal", { "terminal.id": terminalId })
    )
  }

  const deleteTerminal: ExecdClient["deleteTerminal"] = (terminalId) => {
    const at = where("deleteTerminal")
    return Http.segment(at, "terminal id", terminalId).pipe(
      Effect.flatMap((id) => remove(at, `/pty/${id}`, [])),
      goneCounts,
      span("deleteTerminal", { "terminal.id": terminalId })
    )
  }

  const attachTerminal: ExecdClient["attachTerminal"] = (terminalId, options = {}) =>
    Effect.map(
      options.reconnect === true
        ? attachReconnecting(caller, terminalId, options, terminal(terminalId))
        : attach(caller, terminalId, options),
      ({ ended: _ended, pull, ...connection }) => ({ ...connection, output: Stream.repeatEffectChunkOption(pull) })
    ).pipe(span("attachTerminal", { "terminal.id": terminalId, "terminal.pipe": options.pipe === true }))

  return { createTerminal, terminal, deleteTerminal, attachTerminal }
}
