import type { SystemErrorReason } from "@effect/platform/Error"
import { BadArgument, SystemError } from "@effect/platform/Error"
import type { OpenSandboxError } from "../../OpenSandboxError.js"

/** What failed: which method of which service, on which path. */
export interface Where {
  readonly module: "FileSystem" | "Command"
  readonly method: string
  readonly path: string
}

/** The codes of the system that programs of a sandbox name in words, and those words. Those of a shell first: they lack the system's. */
const codes: ReadonlyArray<readonly [code: string, words: RegExp]> = [
  ["EEXIST", /cannot overwrite existing file|File exists/],
  ["EISDIR", /cannot overwrite directory .* with non-directory|omitting directory|Is a directory/],
  ["ENOTDIR", /cannot overwrite non-directory|Not a directory/],
  ["ENOTEMPTY", /Directory not empty/],
  ["ENOENT", /No such file|Directory nonexistent/],
  ["EACCES", /Permission denied/],
  ["EPERM", /Operation not permitted/],
  ["EBUSY", /(?:Device or resource|resource) busy/],
  ["ELOOP", /Too many (?:levels of symbolic links|symbolic links encountered)|Symbolic link loop/],
  ["EINVAL", /Invalid argument/],
  ["ENOSPC", /No space left/],
  ["EROFS", /Read-only file system/],
  ["EXDEV", /Invalid cross-device link|Cross-device link/],
  ["ENAMETOOLONG", /(?:File name|Filename) too long/],
  ["EBADF", /Bad file descriptor/]
]

/** As the platform's own services read them. */
const reasons: { readonly [code: string]: SystemErrorReason } = {
  ENOENT: "NotFound",
  EACCES: "PermissionDenied",
  EEXIST: "AlreadyExists",
  EISDIR: "BadResource",
  ENOTDIR: "BadResource",
  ELOOP: "BadResource",
  EBUSY: "Busy"
}

/** The code in the words that follow the last colon of a line: names that come before it may say anything. */
const codeOf = (stderr: string): string | undefined => {
  const lines = stderr.trimEnd().split("\n").reverse()
  for (const line of lines) {
    const words = line.slice(line.lastIndexOf(": ") + 1)
    const found = codes.find(([, pattern]) => pattern.test(words))
    if (found !== undefined) return found[0]
  }
  return undefined
}

const systemError = (
  { method, module, path }: Where,
  reason: SystemErrorReason,
  description: string,
  cause?: unknown
) =>
  new SystemError({
    module,
    method,
    reason,
    pathOrDescriptor: path,
    description,
    ...(cause === undefined ? {} : { cause })
  })

/** A failure that is known by its code. */
export const fromCode = (where: Where, code: string, description?: string): SystemError =>
  systemError(where, reasons[code] ?? "Unknown", description === undefined ? code : `${code}: ${description}`)

/** The failure that a program of the sandbox told of. */
export const fromStderr = (where: Where, stderr: string): SystemError => {
  const code = codeOf(stderr)
  const words = stderr.trim()
  return code === undefined ? systemError(where, "Unknown", words) : fromCode(where, code, words)
}

/** The sandbox could not be asked. */
export const fromServer = (where: Where, cause: OpenSandboxError): SystemError =>
  systemError(where, cause.reason === "Timeout" ? "TimedOut" : "Unknown", cause.message, cause)

/** Anything else that has no code. */
export const unknown = (where: Where, description: string, cause?: unknown): SystemError =>
  systemError(where, "Unknown", description, cause)

export const badArgument = (
  { method, module }: Omit<Where, "path">,
  description: string,
  cause?: unknown
): BadArgument => new BadArgument({ module, method, description, ...(cause === undefined ? {} : { cause }) })
