/**
 * What the cases of the contract have in common.
 */
import type { Vitest } from "@effect/vitest"
import { assert } from "@effect/vitest"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import type { EventInput, ReadOptions } from "../../Ledger.js"
import { Ledger } from "../../Ledger.js"
import type { LedgerErrorReason } from "../../LedgerError.js"
import { LedgerError } from "../../LedgerError.js"
import type { LedgerEntry } from "../../LedgerEvent.js"

/** How a case is added to the suite that is being defined. */
export type It = Vitest.MethodsNonLive<Ledger>

export const fresh = (prefix: string) =>
  Effect.map(
    Effect.all([Random.nextIntBetween(0, 2 ** 31), Random.nextIntBetween(0, 2 ** 31)]),
    (parts) => `${prefix}-${parts.map((part) => part.toString(36)).join("")}`
  )

export const session = Effect.map(Effect.all([fresh("sbx"), fresh("name")]), ([sandboxId, name]) => ({
  sandboxId,
  name
}))

/** The clock of a case starts long ago; entries that the ledger holds already may be from today. */
export const catchUp = Effect.gen(function* () {
  const ledger = yield* Ledger
  const base = yield* session
  const { ts } = yield* ledger.append({ ...base, event: "now" })
  yield* ledger.deleteSandbox(base.sandboxId)
  yield* TestClock.setTime(ts)
})

export const collect = <A>(stream: Stream.Stream<A, LedgerError, Ledger>) =>
  Effect.map(Stream.runCollect(stream), Chunk.toReadonlyArray)

export const read = (options: ReadOptions) => Effect.flatMap(Ledger, (ledger) => collect(ledger.read(options)))

export const output = (
  base: { readonly sandboxId: string; readonly name: string },
  seq: number,
  text: string
): EventInput => ({
  ...base,
  stepIdx: seq,
  event: "exec.output",
  payload: { seq, type: "stdout", text }
})

export const texts = (entries: ReadonlyArray<LedgerEntry>): ReadonlyArray<unknown> =>
  entries.map(({ payload }) =>
    typeof payload === "object" && payload !== null && "text" in payload ? payload.text : undefined
  )

export const toInput = ({ id: _id, ts: _ts, ...event }: LedgerEntry): EventInput => event

export const failsWith = <A>(reason: LedgerErrorReason, self: Effect.Effect<A, LedgerError, Ledger>) =>
  Effect.map(Effect.flip(self), (error) => {
    assert.instanceOf(error, LedgerError)
    assert.strictEqual(error.reason, reason)
    return error
  })

/** Lets a clock of its own pass for whatever waits, until the fiber is done. */
export const joinPassingTime = <A, E>(fiber: Fiber.Fiber<A, E>): Effect.Effect<A, E> =>
  Effect.flatMap(
    Fiber.poll(fiber),
    Option.match({
      onSome: () => Fiber.join(fiber),
      onNone: () =>
        TestClock.adjust("1 second").pipe(
          Effect.zipRight(Effect.yieldNow()),
          Effect.zipRight(Effect.suspend(() => joinPassingTime(fiber)))
        )
    })
  )
