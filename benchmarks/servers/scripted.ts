/**
 * A server whose commands print what their text says, as fast as it is read:
 *
 *     lines 200000      so many lines of 36 characters
 *     megabytes 2000    so much text, in lines of 250 characters
 *     first             one line, and the end 20 milliseconds later
 */
import * as Effect from "effect/Effect"
import * as ScriptedSandboxes from "../../test/support/ScriptedSandboxes.js"
import * as ScriptedServer from "../../test/support/ScriptedServer.js"
import { serve } from "./serve.js"

/** As execd writes it: the members in this order, and a blank line. */
const stdout = (text: string, timestamp: number) => `{"type":"stdout","text":"${text}","timestamp":${timestamp}}\n\n`

const start = 1_767_225_600_000
const init = `{"type":"init","text":"9f4c0d0e6b0c4d1f8f0c","timestamp":${start}}\n\n`
const complete = `{"type":"execution_complete","execution_time":20,"timestamp":${start}}\n\n`

/** One write of the server. */
const blockSize = 64 * 1024

const blocks = (frames: Iterable<string>): ReadonlyArray<Uint8Array> => {
  const out: Array<Uint8Array> = []
  let block = ""
  for (const frame of frames) {
    block += frame
    if (block.length >= blockSize) {
      out.push(Buffer.from(block))
      block = ""
    }
  }
  if (block !== "") out.push(Buffer.from(block))
  return out
}

const known = new Map<number, ReadonlyArray<Uint8Array>>()

const lines = (count: number): ReadonlyArray<Uint8Array> => {
  const found = known.get(count)
  if (found !== undefined) return found
  const made = blocks(
    Array.from({ length: count }, (_, line) =>
      stdout(`line ${String(line).padStart(8, "0")} of the output of a job`, start + Math.floor(line / 300))
    )
  )
  known.set(count, made)
  return made
}

const lineLength = 249

function* megabytes(count: number): Iterable<Uint8Array> {
  const perBlock = Math.floor(blockSize / (lineLength + 60))
  const block = Buffer.from(stdout("x".repeat(lineLength), start).repeat(perBlock))
  for (let left = Math.ceil((count * 1_000_000) / (lineLength + 1) / perBlock); left > 0; left--) yield block
}

function* concat(...parts: ReadonlyArray<Iterable<ScriptedServer.Step>>): Iterable<ScriptedServer.Step> {
  for (const part of parts) yield* part
}

serve(
  Effect.map(
    ScriptedSandboxes.make({
      command: ({ command }) => {
        const [kind, count] = command.split(" ")
        switch (kind) {
          case "lines":
            return ScriptedServer.stream(concat([init], lines(Number(count)), [complete]))
          case "megabytes":
            return ScriptedServer.stream(concat([init], megabytes(Number(count)), [complete]))
          case "first":
            return ScriptedServer.stream([init + stdout("the first line", start), ScriptedServer.sleep(20), complete])
          default:
            return ScriptedServer.json(400, { code: "INVALID_REQUEST", message: `no command ${command}` })
        }
      }
    }),
    ({ server }) => ({ url: server.url, apiKey: "lifecycle-secret", description: "scripted" })
  )
)
