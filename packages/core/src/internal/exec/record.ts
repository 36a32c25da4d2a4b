import { createHash } from "node:crypto"
import * as Either from "effect/Either"
import * as Encoding from "effect/Encoding"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { OutputChunk } from "../../Exec.js"
import type { EventInput } from "../../Ledger.js"
import type { Json, LedgerEntry } from "../../LedgerEvent.js"
import { EventName } from "../../LedgerEvent.js"
import type * as Replay from "../../Replay.js"
import { jsonObject, stringField } from "../json.js"
import type { CodeValue, ExecContext, Location, Spec } from "./context.js"
import type { Trail } from "./trail.js"
import { makeTrail } from "./trail.js"

export const event = (
  context: ExecContext,
  seq: number,
  name: string,
  payload: { readonly [key: string]: Json | undefined }
): EventInput => ({
  sandboxId: context.sandbox.id,
  name: context.sandbox.name,
  stepIdx: seq,
  event: name,
  payload: jsonObject(payload)
})

export const startedEvent = (
  context: ExecContext,
  spec: Spec,
  seq: number,
  execId: string,
  detached?: true
): EventInput =>
  event(context, seq, EventName.execStarted, {
    seq,
    ...(spec.language === undefined ? { cmd: spec.command } : { code: spec.command, language: spec.language }),
    interactive: spec.interactive,
    key: spec.options.key,
    cwd: spec.options.cwd,
    shell: spec.options.shell,
    session: spec.session?.name,
    idempotencyKey: spec.options.idempotencyKey,
    execId,
    fingerprint: fingerprintOf(spec),
    diverged: takeDivergence(context),
    detached,
    envNames: spec.options.env === undefined ? undefined : Object.keys(spec.options.env)
  })

export const outputEvents = (
  context: ExecContext,
  seq: number,
  chunks: ReadonlyArray<OutputChunk>,
  execId: string | undefined
): Array<EventInput> =>
  chunks.map((chunk) => ({
    sandboxId: context.sandbox.id,
    name: context.sandbox.name,
    stepIdx: seq,
    event: EventName.execOutput,
    payload: outputPayload(seq, chunk, execId)
  }))

/** Bytes that are no text are kept beside what can be read of them. */
export const outputPayload = (
  seq: number,
  { bytes, stream, text }: Omit<OutputChunk, "stream"> & { readonly stream: OutputChunk["stream"] | "stdin" },
  execId: string | undefined
): { readonly [key: string]: Json } =>
  jsonObject({
    seq,
    type: stream,
    text,
    base64: bytes === undefined || isTextOf(text, bytes) ? undefined : Encoding.encodeBase64(bytes),
    execId
  })

const isTextOf = (text: string, bytes: Uint8Array): boolean => {
  const encoded = new TextEncoder().encode(text)
  return encoded.length === bytes.length && encoded.every((byte, index) => byte === bytes[index])
}

/** The recorded output at a location, chunk by chunk. To be read once, for the sake of the trail. */
export const recordedOutput = (
  ledger: ExecContext["ledger"],
  location: Location,
  events: ReadonlyArray<string> = [EventName.execOutput],
  trail: Trail = makeTrail()
) => {
  const entries = ledger.read({
    sandboxId: location.sandboxId,
    stepIdx: location.seq,
    events,
    after: location.after,
    until: location.until
  })
  const { execId } = location
  // Another handle that is attached to the sandbox may use the same sequence.
  return Stream.filter(entries, (entry) => {
    const own = stringField(entry.payload, "execId")
    return (execId === undefined || own === undefined || own === execId) && trail.follows(entry)
  })
}

export const toOutput = ({ payload }: LedgerEntry): Option.Option<OutputChunk> => {
  const type = stringField(payload, "type")
  const text = stringField(payload, "text")
  if (text === undefined || (type !== "stdout" && type !== "stderr")) return Option.none()
  const base64 = stringField(payload, "base64")
  const bytes = base64 === undefined ? Option.none() : Either.getRight(Encoding.decodeBase64(base64))
  return Option.some(
    Option.match(bytes, {
      onNone: () => ({ stream: type, text }),
      onSome: (bytes) => ({ stream: type, text, bytes })
    })
  )
}

/** The bytes of a chunk; `None` where it has only text, such as what stands for half a character. */
export const chunkBytes = ({ bytes, text }: OutputChunk): Option.Option<Uint8Array> => {
  const all = bytes ?? new TextEncoder().encode(text)
  return all.length === 0 ? Option.none() : Option.some(all)
}

/** The bytes of a recorded piece of input or output. */
export const bytesOf = (
  { payload }: LedgerEntry,
  stream: OutputChunk["stream"] | "stdin"
): Option.Option<Uint8Array> => {
  const text = stringField(payload, "text")
  if (text === undefined || stringField(payload, "type") !== stream) return Option.none()
  const base64 = stringField(payload, "base64")
  return base64 === undefined
    ? Option.some(new TextEncoder().encode(text))
    : Either.getRight(Encoding.decodeBase64(base64))
}

export const codeValue = (data: Json | undefined): CodeValue =>
  typeof data === "object" && data !== null && !Array.isArray(data)
    ? // Array.isArray does not narrow readonly arrays away.
      (data as CodeValue)
    : {}

/** Where the output of a recorded exec lies. */
export const locationOf = ({ completed, execId, sandboxId, seq, started }: Replay.RecordedExec): Location => ({
  sandboxId,
  seq,
  after: started,
  until: completed,
  execId
})

const inputDigest = (stdin: string | Uint8Array | object): string =>
  typeof stdin === "string" || stdin instanceof Uint8Array ? createHash("sha256").update(stdin).digest("hex") : "stream"

/** One word for everything but command, directory and key that decides what an exec does. */
export const fingerprintOf = ({ options, session }: Spec): string => {
  const { env, gid, idempotencyKey, raw, shell, stdin, uid } = options
  const parts = [
    shell,
    session?.name,
    uid,
    gid,
    raw === true,
    idempotencyKey,
    Object.keys(env ?? {}).sort(),
    stdin === undefined ? undefined : inputDigest(stdin)
  ]
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 16)
}

/** The first exec after a divergence says so: what older generations hold from there on is no longer this program's. */
const takeDivergence = ({ divergence }: ExecContext): ReadonlyArray<string> | undefined => {
  const { keys } = divergence
  divergence.keys = undefined
  return keys
}
