/** @internal */

import * as ChildProcess from "node:child_process"
import * as Fs from "node:fs"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import { errno } from "./apiError.js"

/**
 * The environment of the server's own tools. A shell whose input is a socket, as pipes of a Node process are, takes itself for one of a remote login and runs the
 * user's `.bashrc` unless `SHLVL` says that it is inside another; `BASH_ENV` and `ENV` would be run as well.
 */
export const toolEnv = (): NodeJS.ProcessEnv => {
  const { BASH_ENV: _bash, ENV: _sh, ...env } = process.env
  return { ...env, SHLVL: "1" }
}

export class ToolError extends Data.TaggedError("ToolError")<{
  readonly tool: string
  readonly message: string
}> {}

export interface ToolResult {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs a short-lived program of the system, killed when interrupted. */
export const runTool = (
  file: string,
  args: ReadonlyArray<string>,
  options?: { readonly cwd?: string | undefined }
): Effect.Effect<ToolResult, ToolError> =>
  Effect.async((resume) => {
    const fail = (cause: unknown) => resume(Effect.fail(new ToolError({ tool: file, message: String(cause) })))
    let child: ChildProcess.ChildProcess
    try {
      child = ChildProcess.spawn(file, args, { stdio: ["ignore", "pipe", "pipe"], cwd: options?.cwd, env: toolEnv() })
    } catch (cause) {
      return fail(cause)
    }
    let stdout = ""
    let stderr = ""
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      stdout += text
    })
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      stderr += text
    })
    child.on("error", fail)
    child.on("close", (code) => resume(Effect.succeed({ code, stdout, stderr })))
    return Effect.sync(() => child.kill("SIGKILL"))
  })

/** `runTool`, where anything but status 0 is a failure. */
export const runToolOk = (file: string, args: ReadonlyArray<string>, options?: { readonly cwd?: string | undefined }) =>
  Effect.flatMap(runTool(file, args, options), (result) =>
    result.code === 0
      ? Effect.succeed(result.stdout)
      : Effect.fail(new ToolError({ tool: file, message: result.stderr.trim() || `exit status ${result.code}` }))
  )

/** Sends a signal; `false` where there is nobody (or nobody of ours) to receive it. */
export const signal = (pid: number, name: NodeJS.Signals | 0): boolean => {
  try {
    process.kill(pid, name)
    return true
  } catch {
    return false
  }
}

export const readFileOr = (path: string, otherwise: string): string => {
  try {
    return Fs.readFileSync(path, "utf8")
  } catch {
    return otherwise
  }
}

/** Fields of `/proc/PID/stat` after the command name, which may itself hold spaces and parentheses. */
export const procStat = (
  pid: number
):
  | { readonly state: string; readonly ppid: number; readonly group: number; readonly startTime: string }
  | undefined => {
  const text = readFileOr(`/proc/${pid}/stat`, "")
  if (text === "") return undefined
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ")
  return { state: fields[0] ?? "", ppid: Number(fields[1]), group: Number(fields[2]), startTime: fields[19] ?? "" }
}

export const allPids = (): Array<number> => {
  try {
    return Fs.readdirSync("/proc").flatMap((name) => (/^\d+$/.test(name) ? [Number(name)] : []))
  } catch {
    return []
  }
}

export const childrenOf = (pid: number): Array<number> => {
  try {
    const text = Fs.readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim()
    return text === "" ? [] : text.split(" ").map(Number)
  } catch (cause) {
    // Kernels without CONFIG_PROC_CHILDREN have no such file.
    if (errno(cause) !== "ENOENT" || procStat(pid) === undefined) return []
    return allPids().filter((candidate) => procStat(candidate)?.ppid === pid)
  }
}

/** Whether anything of a process group still runs: the dead whom nobody has reaped do not. */
export const groupAlive = (group: number): boolean =>
  signal(-group, 0) &&
  allPids().some((pid) => {
    const stat = procStat(pid)
    return stat !== undefined && stat.group === group && stat.state !== "Z"
  })

/** Waits, by polling, until `done` holds; `false` when it did not in time. */
export const waitUntil = (done: () => boolean, millis: number): Effect.Effect<boolean> => {
  const loop = (left: number): Effect.Effect<boolean> =>
    Effect.suspend(() =>
      done()
        ? Effect.succeed(true)
        : left <= 0
          ? Effect.succeed(false)
          : Effect.zipRight(Effect.sleep(5), loop(left - 5))
    )
  return loop(millis)
}

/** Removes a tree whatever the modes in it; what belongs to another user stays. */
export const removeTree = (path: string): Effect.Effect<void, ToolError> => {
  const remove = runToolOk("rm", ["-rf", "--", path])
  return remove.pipe(
    Effect.orElse(() => Effect.zipRight(runTool("chmod", ["-R", "u+rwX", "--", path]), remove)),
    Effect.asVoid
  )
}
