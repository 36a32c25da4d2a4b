/** @internal */
import * as Data from "effect/Data"

/** What a request is refused with: becomes `{code, message}` with its status. */
export class ApiError extends Data.TaggedError("ApiError")<{
  readonly status: number
  readonly code: string
  readonly message: string
}> {}

export const badRequest = (message: string, code = "INVALID_REQUEST") => new ApiError({ status: 400, code, message })

export const invalidParameter = (message: string) => badRequest(message, "SANDBOX::INVALID_PARAMETER")

export const sandboxNotFound = (id: string) =>
  new ApiError({ status: 404, code: "LOCAL::SANDBOX_NOT_FOUND", message: `Sandbox ${id} not found` })

export const snapshotNotFound = (id: string) =>
  new ApiError({ status: 404, code: "LOCAL::SNAPSHOT_NOT_FOUND", message: `Snapshot ${id} not found` })

export const commandNotFound = (id: string) =>
  new ApiError({ status: 404, code: "COMMAND_NOT_FOUND", message: `Command ${id} not found` })

export const contextNotFound = (what: string) =>
  new ApiError({ status: 404, code: "CONTEXT_NOT_FOUND", message: `${what} not found` })

export const conflict = (code: string, message: string) => new ApiError({ status: 409, code, message })

export const runtimeError = (message: string, code = "RUNTIME_ERROR") => new ApiError({ status: 500, code, message })

export const notImplemented = (what: string) =>
  new ApiError({ status: 501, code: "NOT_IMPLEMENTED", message: `${what} is not implemented by the local server` })

const errnoStatus: { readonly [code: string]: readonly [status: number, code: string] } = {
  ENOENT: [404, "FILE_NOT_FOUND"],
  ENOTDIR: [400, "NOT_A_DIRECTORY"],
  EISDIR: [400, "IS_A_DIRECTORY"],
  ELOOP: [400, "TOO_MANY_LINKS"],
  EEXIST: [409, "FILE_EXISTS"],
  ENOTEMPTY: [409, "DIRECTORY_NOT_EMPTY"],
  EACCES: [403, "PERMISSION_DENIED"],
  EPERM: [403, "PERMISSION_DENIED"],
  EROFS: [403, "PERMISSION_DENIED"],
  ENAMETOOLONG: [400, "INVALID_REQUEST"],
  EINVAL: [400, "INVALID_REQUEST"]
}

export const errno = (cause: unknown): string | undefined =>
  typeof cause === "object" && cause !== null && "code" in cause && typeof cause.code === "string"
    ? cause.code
    : undefined

/** Messages of `node:fs` carry the `/proc/self/fd` paths used underneath: the caller's own path is told instead. */
export const fromErrno =
  (path: string) =>
  (cause: unknown): ApiError => {
    if (cause instanceof ApiError) return cause
    const code = errno(cause)
    const known = code === undefined ? undefined : errnoStatus[code]
    if (known !== undefined) return new ApiError({ status: known[0], code: known[1], message: `${code}: ${path}` })
    return runtimeError(code === undefined ? `${String(cause)}: ${path}` : `${code}: ${path}`)
  }
