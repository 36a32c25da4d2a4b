/**
 * Any text and any payload comes back as it was.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import type { EventInput } from "../../Ledger.js"
import { Ledger } from "../../Ledger.js"
import type { Json } from "../../LedgerEvent.js"
import type { It } from "./support.js"
import { read, session, toInput } from "./support.js"

const awkwardTexts = [
  "a\0b",
  "\0",
  "\ud83d",
  "\ude00",
  "x\ud83dy\ude00z",
  "😀",
  "\\u0000",
  "\\\\ud83d",
  'back\\slash\n\t"quoted"',
  "$sandglass.escaped:x\\u0000",
  "\u2028\u2029\ufeff\uffff",
  "'; DROP TABLE alineo_events; --",
  ""
]

const awkwardPayloads: ReadonlyArray<Json> = [
  null,
  true,
  0,
  -1.5,
  2 ** 53 - 1,
  1e21,
  5e-324,
  "",
  "text",
  '{"a":1}',
  "[1,2]",
  "123",
  "null",
  "{not json",
  [],
  {},
  [null, [[]], { a: [{}] }],
  { snake_case: 1, camelCase: 2, "": 3, "a.b": { $: [] } },
  // Written as text: a literal would set the prototype.
  JSON.parse('{"__proto__":{"x":1},"constructor":2,"toJSON":3}'),
  { "$sandglass.escaped": "object", a: "\\u0000" },
  { "$sandglass.escaped": "value", value: "\\u0000" },
  { "$sandglass.escaped": { "$sandglass.escaped": "\0" } },
  ...awkwardTexts,
  ...awkwardTexts.map((text) => ({ [text]: text, nested: [text, { [text]: [text] }] }))
]

const jsonText = FastCheck.oneof(
  FastCheck.string(),
  FastCheck.string({ unit: "binary" }),
  // Any code unit: halves of pairs and NUL are frequent.
  FastCheck.array(FastCheck.constantFrom("\0", "\\", "\ud83d", "\ude00", "u0000", "a", '"', "{"), { maxLength: 8 }).map(
    (units) => units.join("")
  ),
  FastCheck.constantFrom("__proto__", "$sandglass.escaped", "value", "object")
)

/** Arbitrary JSON, rich in what databases dislike. */
export const arbitraryJson: FastCheck.Arbitrary<Json> = FastCheck.letrec<{ readonly json: Json }>((tie) => ({
  json: FastCheck.oneof(
    { depthSize: "small", withCrossShrink: true },
    FastCheck.constant(null),
    FastCheck.boolean(),
    FastCheck.integer(),
    FastCheck.double({ noNaN: true, noDefaultInfinity: true }).map((value) => (value === 0 ? 0 : value)),
    jsonText,
    FastCheck.array(tie("json"), { maxLength: 4 }),
    FastCheck.array(FastCheck.tuple(jsonText, tie("json")), { maxLength: 4 }).map(Object.fromEntries)
  )
})).json

export const roundTrip = (it: It): void => {
  it.effect("any payload survives", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const payloads = [...awkwardPayloads, ...FastCheck.sample(arbitraryJson, 300)]
      const stored = yield* ledger.appendAll(payloads.map((payload) => ({ ...base, event: "any", payload })))
      const found = yield* read({ sandboxId: base.sandboxId })
      assert.strictEqual(found.length, payloads.length)
      for (const [index, payload] of payloads.entries()) {
        assert.deepStrictEqual(found[index]?.payload, payload)
        assert.deepStrictEqual(stored[index]?.payload, payload)
      }
    })
  )

  it.effect("any text survives in the columns", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const samples = [...awkwardTexts, ...FastCheck.sample(jsonText, 100)]
      const events = samples.map(
        (text): EventInput => ({
          sandboxId: base.sandboxId + text,
          name: base.name + text,
          stepIdx: -1,
          event: `e${text}`,
          error: text
        })
      )
      const stored = yield* ledger.appendAll(events)
      assert.deepStrictEqual(stored.map(toInput), events)
      for (const entry of stored) {
        const found = yield* read({ sandboxId: entry.sandboxId, name: entry.name, events: [entry.event] })
        assert.deepInclude(found, entry)
        assert.isTrue(found.every((other) => other.sandboxId === entry.sandboxId))
      }
    })
  )
}
