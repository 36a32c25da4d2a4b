import { assert, describe, it } from "@effect/vitest"
import type { Execd } from "@sandglass/core"
import { makeFrameDecoder } from "../../packages/core/src/internal/execd/frames.js"

const encoder = new TextEncoder()

const frame = (event: { readonly [key: string]: unknown }) => `${JSON.stringify(event)}\n\n`
const out = (text: string) => ({ type: "stdout", text, timestamp: 1700000000000 })
const err = (text: string) => ({ type: "stderr", text, timestamp: 1700000000000 })
const init = { type: "init", text: "c1", timestamp: 1 }
const complete = { type: "execution_complete", execution_time: 5, timestamp: 1 }

interface Decoded {
  readonly events: ReadonlyArray<Execd.ExecdEvent>
  readonly decoder: ReturnType<typeof makeFrameDecoder>
}

const decode = (
  reads: Iterable<string | Uint8Array>,
  options: { readonly lines?: boolean; readonly background?: boolean } = {}
): Decoded => {
  const decoder = makeFrameDecoder({ lines: options.lines ?? true, background: options.background ?? false })
  const events: Array<Execd.ExecdEvent> = []
  for (const read of reads) events.push(...decoder.push(typeof read === "string" ? encoder.encode(read) : read))
  events.push(...decoder.end())
  return { events, decoder }
}

/** What a consumer makes of the events, however they were cut. */
const joined = (events: ReadonlyArray<Execd.ExecdEvent>): ReadonlyArray<Execd.ExecdEvent> => {
  const all: Array<Execd.ExecdEvent> = []
  for (const event of events) {
    const last = all[all.length - 1]
    if (event._tag === "Output" && last?._tag === "Output" && last.stream === event.stream) {
      all[all.length - 1] = { ...last, text: last.text + event.text }
    } else {
      all.push(event)
    }
  }
  return all
}

const pieces = function* (bytes: Uint8Array, size: number) {
  for (let offset = 0; offset < bytes.length; offset += size) yield bytes.subarray(offset, offset + size)
}

const textOf = (events: ReadonlyArray<Execd.ExecdEvent>) =>
  events.map((event) => (event._tag === "Output" ? event.text : "")).join("")

describe("packets are not frames", () => {
  const events = [
    init,
    ...Array.from({ length: 1000 }, (_, i) => (i % 7 === 3 ? err(`e"${i}"\\ \u001b[1m`) : out(`line ${i} é漢`))),
    { type: "ping", timestamp: 1 },
    complete
  ]
  const bare = events.map(frame).join("")
  const expected = joined(decode([bare]).events)

  it("reads a thousand frames in one packet", () => {
    assert.strictEqual(expected.length, 2 + 143 * 2 + 1)
    assert.deepStrictEqual(expected[0], { _tag: "Init", commandId: "c1" })
    assert.deepStrictEqual(expected[1], {
      _tag: "Output",
      stream: "stdout",
      text: "line 0 é漢\nline 1 é漢\nline 2 é漢\n"
    })
    assert.deepStrictEqual(expected[2], { _tag: "Output", stream: "stderr", text: `e"3"\\ \u001b[1m\n` })
    assert.deepStrictEqual(expected[expected.length - 1], { _tag: "Exit", exitCode: 0, durationMillis: 5 })
  })

  for (const [name, body] of [
    ["bare", bare],
    ["CRLF", bare.replaceAll("\n", "\r\n")],
    ["one newline between frames", bare.replaceAll("\n\n", "\n")],
    ["data: with a space", bare.replaceAll(/^(?=\{)/gm, "data: ")],
    ["data: without one", bare.replaceAll(/^(?=\{)/gm, "data:")],
    [
      "real SSE",
      `retry: 500\n: hello\n\n${bare.replaceAll(/^(?=\{)/gm, "event: message\nid: 5\n:keepalive\ndata: ")}`.replaceAll(
        "\n",
        "\r\n"
      )
    ],
    [
      "spaces in the JSON",
      events.map((event) => `${JSON.stringify(event, null, 1).replaceAll("\n", "")}\n\n`).join("")
    ],
    [
      "another order of fields",
      events.map((event) => frame(Object.fromEntries(Object.entries(event).reverse()))).join("")
    ],
    ["no last newline", bare.trimEnd()]
  ] as const) {
    const bytes = encoder.encode(body)
    for (const size of [1, 2, 7, 1000, bytes.length]) {
      it(`${name}, ${size} bytes a packet`, () => {
        const { decoder, events } = decode(pieces(bytes, size))
        assert.deepStrictEqual(joined(events), expected)
        assert.isTrue(decoder.isDone())
      })
    }
  }

  it("merges what one read brought, and only that", () => {
    const decoder = makeFrameDecoder({ lines: true, background: false })
    const read = (...events: ReadonlyArray<{ readonly [key: string]: unknown }>) =>
      decoder.push(encoder.encode(events.map(frame).join("")))
    assert.deepStrictEqual(read(out("a"), out("b"), { type: "ping" }, out("c"), err("d"), out("e")), [
      { _tag: "Output", stream: "stdout", text: "a\nb\nc\n" },
      { _tag: "Output", stream: "stderr", text: "d\n" },
      { _tag: "Output", stream: "stdout", text: "e\n" }
    ])
    assert.deepStrictEqual(read(out("f")), [{ _tag: "Output", stream: "stdout", text: "f\n" }])
    assert.deepStrictEqual(read({ type: "ping" }), [])
  })
})

describe("text", () => {
  it("puts a line end where there is none", () => {
    const body = [out("a"), out("\n"), out("b"), out(""), out("c\n"), { type: "stdout" }].map(frame).join("")
    assert.strictEqual(textOf(decode([body]).events), "a\n\nb\n\nc\n\n")
    assert.strictEqual(textOf(decode([body], { lines: false }).events), "a\nbc\n")
  })

  it("keeps split characters together at every cut", () => {
    const text = "é漢👩‍👩‍👧"
    const bytes = encoder.encode(frame(out(text)))
    for (let cut = 0; cut <= bytes.length; cut++) {
      assert.strictEqual(textOf(decode([bytes.subarray(0, cut), bytes.subarray(cut)]).events), `${text}\n`)
    }
    assert.strictEqual(textOf(decode(pieces(bytes, 1)).events), `${text}\n`)
  })

  it("reads escapes exactly", () => {
    const text = '\u0000\u0001\t"\\\\n/\u2028\ud83d \ude00 \u001b[0m'
    assert.strictEqual(textOf(decode([frame(out(text))]).events), `${text}\n`)
    assert.strictEqual(
      textOf(decode([`{"type":"stdout","text":"\\u00e9\\/\\ud83d\\ude00","timestamp":1}\n`]).events),
      "é/😀\n"
    )
  })

  it("is not fooled by text that looks like a frame", () => {
    for (const text of [
      `","timestamp":1}`,
      `{"type":"execution_complete"}`,
      `\n{"type":"execution_complete"}\n`,
      `data: {"type":"error"}`,
      `\\","timestamp":1}`
    ]) {
      const { decoder, events } = decode([frame(out(text)) + frame(out("next"))])
      assert.strictEqual(textOf(events), `${text.replace(/\n$/, "")}\nnext\n`)
      assert.isFalse(decoder.isDone())
    }
  })

  it("reads fields besides the usual ones", () => {
    const body =
      `{"type":"stdout","text":"a","timestamp":1,"extra":{"type":"error"}}\n{"type":"stdout","text":"b","timestamp":"x"}\n` +
      `{"type":"stdout","text":"c","timestamp":1.5}\n{"type":"stdout","text":"d","timestamp":1} \n{"type":"stdout","text":7}\n`
    assert.strictEqual(textOf(decode([body]).events), "a\nb\nc\nd\n\n")
  })

  it("splits at 65,536 units, never inside a character", () => {
    const text = `x${"😀".repeat(100_000)}`
    const { events } = decode([frame(out(text))])
    assert.strictEqual(textOf(events), `${text}\n`)
    for (const event of events) {
      if (event._tag !== "Output") continue
      assert.isAtMost(event.text.length, 65_536)
      assert.notMatch(event.text, /[\ud800-\udbff]$|^[\udc00-\udfff]/)
    }
    assert.lengthOf(events, 4)
    const many = decode([
      Array.from({ length: 10_000 }, (_, i) => frame(out(`a line of no great length, number ${i}`))).join("")
    ]).events
    for (const event of many) {
      assert.isTrue(event._tag === "Output" && event.text.length <= 65_536 && event.text.endsWith("\n"))
    }
  })
})

describe("events", () => {
  it("ignores heartbeats and what it does not know", () => {
    const body = [
      ...Array.from({ length: 1200 }, () => ({ type: "ping", text: "pong", timestamp: 1 })),
      { type: "status", text: "idle" },
      { type: "result", results: { "text/plain": "4" } },
      { type: "execution_count", execution_count: 1 },
      { type: "heartbeat2", code: "X", message: "y" },
      {},
      { type: 5 }
    ]
      .map(frame)
      .join("")
    const { decoder, events } = decode(pieces(encoder.encode(`${body}[]\n`), 1000))
    assert.deepStrictEqual(events, [])
    assert.isFalse(decoder.isDone())
    assert.deepStrictEqual(decoder.failure(), { _tag: "Garbage", description: "[]" })
  })

  const exit = (error: unknown, extra: { readonly [key: string]: unknown } = {}) => {
    const event = decode([frame({ type: "error", error, ...extra })]).events[0]
    assert.strictEqual(event?._tag, "Exit")
    return event?._tag === "Exit" ? event : undefined
  }

  it("reads an exit code only where there is one", () => {
    const code = (evalue: unknown) => exit({ ename: "CommandExecError", evalue, traceback: [] })
    assert.strictEqual(code("3")?.exitCode, 3)
    assert.strictEqual(code("0")?.exitCode, 0)
    assert.strictEqual(code("255")?.exitCode, 255)
    assert.strictEqual(code(7)?.exitCode, 7)
    for (const evalue of [
      "-1",
      "signal: killed",
      "fork/exec /x: no such file",
      "",
      " ",
      "1.5",
      "0x1",
      "1e3",
      "12345678901",
      -1,
      null,
      {},
      "3 "
    ]) {
      const event = code(evalue)
      assert.strictEqual(event?.exitCode, evalue === "3 " ? 3 : undefined, String(evalue))
      assert.isString(event?.message)
      assert.strictEqual(event?.name, "CommandExecError")
    }
    assert.strictEqual(code("signal: killed")?.message, "signal: killed")
    assert.strictEqual(code("-1")?.message, "-1")
  })

  it("keeps a language error's words", () => {
    const event = exit({ ename: "NameError", evalue: "3", traceback: ["a", 5, "b"] }, { execution_time: 9 })
    assert.deepStrictEqual(event, {
      _tag: "Exit",
      exitCode: undefined,
      name: "NameError",
      message: "3",
      traceback: ["a", "b"],
      durationMillis: 9
    })
    assert.strictEqual(exit(undefined, { text: "words" })?.message, "words")
    assert.strictEqual(exit("words")?.message, "words")
    assert.isString(exit(null)?.message)
  })

  it("does not call a background start a success", () => {
    const { events } = decode([frame(init), frame(complete)], { background: true })
    assert.deepStrictEqual(events[1], { _tag: "Exit", background: true, durationMillis: 5 })
  })

  it("hears nothing after the terminal event", () => {
    const { decoder, events } = decode([`${frame(complete) + frame(out("late"))}<html>`, frame(init), "garbage"])
    assert.lengthOf(events, 1)
    assert.isTrue(decoder.isDone())
    assert.isUndefined(decoder.failure())
  })
})

describe("what is no event stream", () => {
  it("an error inside the stream keeps its code and message, and what came before", () => {
    for (const line of [`{"code":"RUNTIME_ERROR","message":"x"}`, `data: {"code":"RUNTIME_ERROR","message":"x"}\r`]) {
      for (const newline of ["", "\n"]) {
        const { decoder, events } = decode([frame(out("a")) + frame(out("b")) + line.trimEnd() + newline])
        assert.strictEqual(textOf(events), "a\nb\n")
        assert.deepStrictEqual(decoder.failure(), {
          _tag: "Reported",
          document: { code: "RUNTIME_ERROR", description: "x" }
        })
      }
    }
  })

  it("an error document instead of the stream, pretty-printed or not", () => {
    const document = { code: "BUSY", message: "later" }
    for (const body of [
      JSON.stringify(document),
      JSON.stringify(document, null, 2),
      `\n\n${JSON.stringify(document, null, "\t")}\n`
    ]) {
      for (const size of [1, 1000]) {
        const { decoder, events } = decode(pieces(encoder.encode(body), size))
        assert.deepStrictEqual(events, [])
        assert.deepStrictEqual(decoder.failure(), {
          _tag: "Reported",
          document: { code: "BUSY", description: "later" }
        })
      }
    }
  })

  it("a page is reported by its start", () => {
    const page = `<!DOCTYPE html>\n<html>\n<body>${"<p>gateway</p>\n".repeat(20_000)}</body></html>`
    for (const size of [1, 50_000]) {
      const { decoder } = decode(pieces(encoder.encode(page), size))
      const failure = decoder.failure()
      assert.strictEqual(failure?._tag, "Garbage")
      assert.match(failure?._tag === "Garbage" ? failure.description : "", /^<!DOCTYPE html> <html> <body><p>gateway/)
    }
  })

  it("garbage in mid-stream fails with its start, after what came before", () => {
    const { decoder, events } = decode([`${frame(out("a"))}<html>proxy gave up</html>\n${frame(out("b"))}`])
    assert.strictEqual(textOf(events), "a\n")
    const failure = decoder.failure()
    assert.match(failure?._tag === "Garbage" ? failure.description : "", /^<html>proxy gave up/)
  })

  it("half a frame at the end is a cut, not garbage", () => {
    const { decoder, events } = decode([`${frame(out("a"))}{"type":"stdout","te`])
    assert.strictEqual(textOf(events), "a\n")
    assert.isUndefined(decoder.failure())
    assert.isFalse(decoder.isDone())
  })

  it("knows that nothing came", () => {
    assert.isTrue(decode([]).decoder.isEmpty())
    assert.isTrue(decode([""]).decoder.isEmpty())
    assert.isFalse(decode(["\n"]).decoder.isEmpty())
  })
})

describe("size", () => {
  // a quadratic decoder needs minutes for these
  it("200,000 frames of 20 bytes, whole and in small packets", () => {
    const bytes = encoder.encode(`{"type":"stdout"}\n\n`.repeat(200_000))
    for (const size of [bytes.length, 4096, 19]) {
      assert.strictEqual(textOf(decode(pieces(bytes, size)).events).length, 200_000)
    }
  })

  it("one line of 10 MB, in packets of 64 KiB and of one byte", () => {
    for (const body of [
      `{"type":"stdout","text":"${"x".repeat(10_000_000)}","timestamp":1}\n\n`,
      `{"type":"stdout","text":"\\n${"x".repeat(10_000_000)}"}`
    ]) {
      const bytes = encoder.encode(body)
      for (const size of [65_536, 1]) {
        assert.isAtLeast(textOf(decode(pieces(bytes, size)).events).length, 10_000_001)
      }
    }
  })
})
