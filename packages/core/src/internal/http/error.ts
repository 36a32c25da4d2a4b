/** @internal */
import type * as HttpClientError from "@effect/platform/HttpClientError"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import type { OpenSandboxErrorReason } from "../../OpenSandboxError.js"
import { OpenSandboxError } from "../../OpenSandboxError.js"
import { decodeUtf8, readCapped, snippet } from "./body.js"

/** @internal */
export interface Where {
  readonly module: "OpenSandbox" | "Execd" | "Egress"
  readonly method: string
}

/** An error document longer than this is cut. */
const errorBodyCap = 64 * 1024

/** @internal */
export const invalidRequest = (where: Where, description: string): OpenSandboxError =>
  new OpenSandboxError({ ...where, reason: "InvalidRequest", description })

const describeCause = (cause: unknown): string | undefined => {
  const seen: Array<string> = []
  let current = cause
  for (let depth = 0; depth < 5 && current !== undefined && current !== null; depth++) {
    if (typeof current === "string") {
      seen.push(current)
      break
    }
    const code = Predicate.hasProperty(current, "code") && typeof current.code === "string" ? current.code : undefined
    const message =
      Predicate.hasProperty(current, "message") && typeof current.message === "string" ? current.message : undefined
    for (const part of [code, message]) {
      // A message that begins with the code says it all.
      if (part === undefined || part === "" || seen.some((known) => known.startsWith(part))) continue
      if (code !== undefined && part === message && message.startsWith(code) && seen.at(-1) === code) seen.pop()
      seen.push(part)
    }
    current = Predicate.hasProperty(current, "cause") ? current.cause : undefined
  }
  return seen.length === 0 ? undefined : seen.join(": ")
}

const refusedCodes = new Set(["ECONNREFUSED", "ConnectionRefused", "ENOTFOUND", "EAI_AGAIN", "FailedToOpenSocket"])

/**
 * Whether a connection was never made, so that the server cannot have seen the request.
 *
 * @internal
 */
export const neverSent = (error: OpenSandboxError): boolean => {
  let current = error.cause
  for (let depth = 0; depth < 5; depth++) {
    if (Predicate.hasProperty(current, "code") && typeof current.code === "string" && refusedCodes.has(current.code)) {
      return true
    }
    if (!Predicate.hasProperty(current, "cause")) return false
    current = current.cause
  }
  return false
}

/**
 * Whether the server may have done all the same what a request asked for that failed.
 *
 * @internal
 */
export const isAmbiguous = (error: OpenSandboxError): boolean => {
  switch (error.reason) {
    case "Transport":
      return !neverSent(error)
    case "Timeout":
    case "Decode":
      return true
    case "ServerError":
      // with a code it is the server itself that says no; without one it is something in between
      return error.status !== undefined && error.status >= 500 && error.status !== 501 && error.code === undefined
    default:
      return false
  }
}

/**
 * The client's own error. It holds the request with its headers, secrets included, so only what caused it is kept.
 *
 * @internal
 */
export const fromClientError =
  (where: Where) =>
  (error: HttpClientError.HttpClientError): OpenSandboxError => {
    const description = error.description ?? describeCause(error.cause)
    if (error._tag === "RequestError") {
      return new OpenSandboxError({
        ...where,
        reason: error.reason === "Transport" ? "Transport" : "InvalidRequest",
        description: `${error.request.method} ${error.request.url}: ${description ?? error.reason}`,
        cause: error.cause
      })
    }
    return new OpenSandboxError({
      ...where,
      // the platform calls any failure to read a body "Decode", a cut connection included
      reason: error.reason === "Decode" ? "Transport" : "Decode",
      description: description ?? "the body could not be read",
      cause: error.cause
    })
  }

/** @internal */
export const timedOut = (where: Where, description: string): OpenSandboxError =>
  new OpenSandboxError({ ...where, reason: "Timeout", description })

/** @internal */
export interface ErrorDocument {
  readonly code?: string | undefined
  readonly description?: string | undefined
}

/** What a server says about an error is cut here; the whole may be a build log. */
const maxDescription = 2000

const textOf = (value: unknown): string | undefined =>
  typeof value === "string"
    ? value === ""
      ? undefined
      : value.slice(0, maxDescription)
    : typeof value === "number"
      ? String(value)
      : undefined

const validationProblem = (item: unknown): string | undefined => {
  if (typeof item === "string") return textOf(item)
  if (!Predicate.isRecord(item)) return undefined
  const message = textOf(item.msg) ?? textOf(item.message)
  const path = Array.isArray(item.loc) ? item.loc.filter((_) => textOf(_) !== undefined).join(".") : ""
  return message === undefined ? undefined : path === "" ? message : `${path}: ${message}`
}

/**
 * Code and message of any JSON error document that the servers are known to send; `undefined` where the value is none of them.
 *
 * @internal
 */
export const errorDocument = (value: unknown): ErrorDocument | undefined => {
  if (typeof value === "string") return value === "" ? undefined : { description: textOf(value) }
  if (Array.isArray(value)) {
    const problems = value.map(validationProblem).filter((_) => _ !== undefined)
    return problems.length === 0 ? undefined : { description: problems.join("; ") }
  }
  if (!Predicate.isRecord(value)) return undefined
  const code = textOf(value.code)
  const description = textOf(value.message)
  if (code !== undefined || description !== undefined) return { code, description }
  for (const nested of [value.detail, value.error]) {
    const document = nested === undefined ? undefined : errorDocument(nested)
    if (document !== undefined) return document
  }
  return undefined
}

/** @internal */
export const parseErrorBody = (text: string): ErrorDocument => {
  try {
    const document = errorDocument(JSON.parse(text))
    if (document !== undefined) return document
  } catch {
    // no JSON: a proxy's page or plain text
  }
  const description = snippet(text)
  return description === "" ? {} : { description }
}

/** What these say is about what they ran. */
const runs = new Set(["command", "runInSession", "runCode"])

const missing = /no such file or directory|not found|does not exist|not exist/i

/** @internal */
export const reasonOf = (where: Where, status: number, document: ErrorDocument): OpenSandboxErrorReason => {
  switch (status) {
    case 401:
    case 403:
      return "Unauthorized"
    case 404:
    case 410:
      return "NotFound"
    case 409:
    case 412:
      return "Conflict"
    case 429:
      return "RateLimited"
  }
  if (document.code !== undefined && /NOT_?FOUND/i.test(document.code)) return "NotFound"
  // execd answers 500 for a missing file, and says so in prose only
  if (
    where.module === "Execd" &&
    !runs.has(where.method) &&
    status === 500 &&
    document.description !== undefined &&
    missing.test(document.description)
  )
    return "NotFound"
  if (status === 400 || status === 413 || status === 416 || status === 422) return "InvalidRequest"
  return "ServerError"
}

/**
 * Milliseconds to wait. A date is compared with the server's own clock where the answer tells it.
 *
 * @internal
 */
export const parseRetryAfter = (
  header: string | undefined,
  date: string | undefined,
  now: number
): number | undefined => {
  if (header === undefined) return undefined
  const text = header.trim()
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000
  if (!/^[A-Za-z]{3,9},? /.test(text)) return undefined
  const at = Date.parse(text)
  if (Number.isNaN(at)) return undefined
  const server = date === undefined ? Number.NaN : Date.parse(date)
  return Math.max(0, at - (Number.isNaN(server) ? now : server))
}

/**
 * The error that an answer with an error status stands for. Reads the body.
 *
 * @internal
 */
export const fromResponse = (
  where: Where,
  response: HttpClientResponse.HttpClientResponse
): Effect.Effect<OpenSandboxError> =>
  Effect.gen(function* () {
    const { bytes } = yield* readCapped(response, errorBodyCap).pipe(
      // the status says enough when the body is cut
      Effect.orElseSucceed(() => ({ bytes: new Uint8Array(0), truncated: true }))
    )
    const document =
      response.status < 400 && response.headers.location !== undefined
        ? { description: `an unexpected redirect to ${response.headers.location}; use that address instead` }
        : parseErrorBody(decodeUtf8(bytes))
    const now = yield* Clock.currentTimeMillis
    return new OpenSandboxError({
      ...where,
      reason: reasonOf(where, response.status, document),
      status: response.status,
      code: document.code,
      description: document.description,
      requestId: response.headers["x-request-id"],
      retryAfter: parseRetryAfter(response.headers["retry-after"], response.headers.date, now)
    })
  })
