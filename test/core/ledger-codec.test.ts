import { assert, describe, it } from "@effect/vitest"
import type { LedgerEvent } from "@sandglass/core"
import { LedgerContract } from "@sandglass/core/testing"
import * as FastCheck from "effect/FastCheck"
import * as Codec from "../../packages/core/src/internal/ledger/codec.js"

const codeUnits = FastCheck.array(
  FastCheck.oneof(
    FastCheck.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)),
    FastCheck.constantFrom("\0", "\\", "\\u0000", "\ud83d", "\ude00", Codec.textMarker)
  ),
  { maxLength: 12 }
).map((units) => units.join(""))

const encode = (value: LedgerEvent.Json, restricted: boolean): string => {
  const json = Codec.jsonify(value)
  if (typeof json === "string") {
    throw new Error(json)
  }
  const text = Codec.encodePayload(json.value, json.text, restricted)
  if (text === undefined) {
    throw new Error("nested too deeply")
  }
  return text
}

/** What Postgres refuses in JSONB: an escape of NUL, or of half a pair. */
const everyText = (value: unknown, predicate: (text: string) => boolean): boolean =>
  typeof value === "string"
    ? predicate(value)
    : Array.isArray(value)
      ? value.every((item) => everyText(item, predicate))
      : typeof value === "object" && value !== null
        ? Object.entries(value).every(([key, item]) => predicate(key) && everyText(item, predicate))
        : true

describe("the ledger's codec", () => {
  it.prop(
    "restores every payload, whatever the database accepts",
    [LedgerContract.arbitraryJson, FastCheck.boolean()],
    ([value, restricted]) => {
      assert.deepStrictEqual(Codec.decodePayload(encode(value, restricted)), value)
    },
    { fastCheck: { numRuns: 2000 } }
  )

  it.prop(
    "leaves nothing in JSON that Postgres refuses",
    [LedgerContract.arbitraryJson],
    ([value]) => {
      assert.isTrue(everyText(JSON.parse(encode(value, true)), Codec.isPlainText))
    },
    { fastCheck: { numRuns: 2000 } }
  )

  it("escapes a payload only where it must", () => {
    for (const value of [{ a: "x\\u0000", path: "C:\\u\\temp" }, { text: "😀\n" }, "plain", ["\\ud83d"]]) {
      assert.strictEqual(encode(value, true), JSON.stringify(value))
      assert.strictEqual(encode({ text: "\0\ud83d" }, false), JSON.stringify({ text: "\0\ud83d" }))
    }
    assert.notStrictEqual(encode({ text: "\0" }, true), JSON.stringify({ text: "\0" }))
  })

  it("keeps the keys of an escaped object where queries look for them", () => {
    const stored: unknown = JSON.parse(encode({ runId: "run-1", text: "a\0b" }, true))
    assert.deepInclude(stored, { runId: "run-1" })
  })

  it.prop(
    "restores every text of a column, and stores none that a database would damage",
    [codeUnits],
    ([text]) => {
      const stored = Codec.encodeText(text)
      assert.isTrue(Codec.isPlainText(stored))
      assert.strictEqual(Codec.decodeText(stored), text)
      assert.strictEqual(Codec.isPlainText(text) && !text.startsWith(Codec.textMarker), stored === text)
    },
    { fastCheck: { numRuns: 2000 } }
  )

  it("restores texts with millions of characters to escape", () => {
    const text = `\ud83d${"a\\\0".repeat(1_000_000)}`
    for (const restricted of [true, false]) {
      const stored = Codec.encodeText(text)
      assert.isTrue(Codec.isPlainText(stored))
      // Not compared by an assertion: it would describe them.
      assert.isTrue(Codec.decodeText(stored) === text)
      const payload = encode({ text }, restricted)
      assert.strictEqual(everyText(JSON.parse(payload), Codec.isPlainText), restricted)
      assert.isTrue(Object(Codec.decodePayload(payload)).text === text)
    }
  }, 60_000)

  it("reads what other programs wrote as they wrote it", () => {
    const foreign: ReadonlyArray<readonly [string, LedgerEvent.Json]> = [
      ['{"a":"C:\\\\u0000"}', { a: "C:\\u0000" }],
      [
        '{"$sandglass.escaped":"object","a":"lone \\\\ backslash"}',
        {
          "$sandglass.escaped": "object",
          a: "lone \\ backslash"
        }
      ],
      ['{"$sandglass.escaped":7}', { "$sandglass.escaped": 7 }],
      ['"{\\"a\\":1}"', { a: 1 }],
      ['"[1,2]"', [1, 2]],
      ['"123"', "123"],
      ['"{broken"', "{broken"],
      ["not json", "not json"],
      ["", ""],
      ['{"a":1', '{"a":1']
    ]
    for (const [stored, value] of foreign) {
      assert.deepStrictEqual(Codec.decodePayload(stored), value)
    }
    for (const text of [`${Codec.textMarker}plain`, `${Codec.textMarker}lone \\ backslash`, Codec.textMarker]) {
      assert.strictEqual(Codec.decodeText(text), text)
    }
  })
})
