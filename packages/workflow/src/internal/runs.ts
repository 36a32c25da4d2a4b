import type { Ledger } from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { RunDetails } from "../Workflow.js"
import { EventName } from "./events.js"

const ends: { readonly [event: string]: RunDetails["status"] } = {
  [EventName.runCompleted]: "completed",
  [EventName.runFailed]: "failed",
  [EventName.runInterrupted]: "interrupted",
  [EventName.runResumed]: "running"
}

/** The runs of a ledger, newest first. */
export const runs = (
  ledger: Context.Tag.Service<Ledger>,
  filter: { readonly name?: string | undefined }
): Stream.Stream<RunDetails, LedgerError> =>
  ledger.read({ name: filter.name, events: [EventName.runStarted], order: "desc" }).pipe(
    Stream.mapEffect(({ name, sandboxId, ts }) =>
      Effect.map(
        Stream.runHead(ledger.read({ sandboxId, events: Object.keys(ends), order: "desc", limit: 1 })),
        (last): RunDetails => ({
          runId: sandboxId,
          name,
          status: Option.match(last, { onNone: () => "running", onSome: ({ event }) => ends[event] ?? "running" }),
          startedAt: ts
        })
      )
    )
  )
