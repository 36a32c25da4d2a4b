/** @internal */
import * as Os from "node:os"
import type * as Effect from "effect/Effect"
import type * as WS from "ws"
import type { Pipe } from "../pipes.js"
import { closePipe } from "../pipes.js"
import type { Process } from "../processes.js"
import { ProcessPipe } from "../processPipe.js"
import { closeQuietly } from "../rooted.js"
import { Connection, TAKEN_OVER } from "./connection.js"
import { frame, windowFrame } from "./relays.js"
import { Replay } from "./replay.js"

export type Mode = "pty" | "pipe"

/** What may be sent to the process by name. */
const SIGNALS: ReadonlySet<string> = new Set(["SIGINT", "SIGTERM", "SIGKILL", "SIGQUIT", "SIGHUP"])

/** Starts the process on pipes of which it has the writing ends from then on: one for a terminal, whose two outputs are one. */
export type Start = (mode: Mode, writers: readonly [number, number]) => Process

export interface TerminalOptions {
  readonly id: string
  readonly now: () => number
  readonly start: Start
  readonly whenEnded: (process: Process, then: (exitCode: number) => void) => void
  readonly signal: (process: Process, name: NodeJS.Signals) => Effect.Effect<void>
  readonly run: (effect: Effect.Effect<void>) => void
}

interface Run {
  readonly mode: Mode
  readonly process: Process
  readonly outputs: ReadonlyArray<ProcessPipe>
}

const isSignal = (name: string): name is NodeJS.Signals => SIGNALS.has(name)

/** A shell that goes on whether or not somebody is connected to it. */
export class Terminal {
  readonly id: string
  readonly replay = new Replay()
  private run: Run | undefined
  private holder: Connection | undefined
  /** Of present and past runs: something may still hold their other end. */
  private readonly open = new Set<ProcessPipe>()

  constructor(private readonly options: TerminalOptions) {
    this.id = options.id
  }

  get running(): boolean {
    return this.run !== undefined
  }

  get held(): boolean {
    return this.holder !== undefined
  }

  get process(): Process | undefined {
    return this.run?.process
  }

  /** Makes the socket the one that holds the terminal. Takes the pipes over. */
  connect(
    socket: WS.WebSocket,
    given: {
      readonly mode: Mode
      readonly since: number
      readonly takeover: boolean
      readonly pipes: readonly [Pipe, Pipe]
    }
  ): void {
    const connection: Connection = new Connection(socket, this.options.now, {
      input: (bytes) => this.input(connection, bytes),
      resize: (cols, rows) => {
        if (this.run?.mode === "pty") this.run.process.child?.stdin?.write(windowFrame(cols, rows))
      },
      signal: (name) => this.signal(name),
      flow: (flowing) => this.flow(flowing),
      close: () => {
        if (this.holder !== connection) return
        this.holder = undefined
        // Nobody is left to wait for.
        this.flow(true)
      }
    })
    if (this.holder !== undefined && !given.takeover) {
      for (const pipe of given.pipes) closePipe(pipe)
      connection.error("ALREADY_CONNECTED", `another client is connected to terminal ${this.id}`)
      connection.finish(1008, "ALREADY_CONNECTED")
      return
    }
    this.holder?.finish(TAKEN_OVER, "TAKEN_OVER")
    this.holder = connection
    if (this.run !== undefined) {
      for (const pipe of given.pipes) closePipe(pipe)
    } else {
      try {
        this.begin(given.mode, given.pipes)
      } catch (cause) {
        connection.error("START_FAILED", cause instanceof Error ? cause.message : String(cause))
        connection.finish(1011, "START_FAILED")
        return
      }
    }
    const missed = this.replay.from(given.since)
    if (missed.bytes.length > 0) connection.replay(missed.offset, missed.bytes)
    connection.json({ type: "connected", session_id: this.id, mode: this.run?.mode ?? given.mode })
    for (const output of this.run?.outputs ?? []) output.resume()
    socket.resume()
  }

  tick(): void {
    this.holder?.tick()
  }

  /** Asks the process to end at once; its end is told as any other. */
  hangUp(): void {
    this.run?.process.child?.stdin?.end()
  }

  /** The sandbox is gone. */
  close(): void {
    this.holder?.terminate()
    for (const output of this.open) output.close()
    this.open.clear()
    this.run = undefined
  }

  private begin(mode: Mode, [out, error]: readonly [Pipe, Pipe]): void {
    if (mode === "pty") closePipe(error)
    let process: Process
    try {
      process = this.options.start(mode, mode === "pty" ? [out.writer, out.writer] : [out.writer, error.writer])
    } catch (cause) {
      closePipe(out)
      if (mode === "pipe") closePipe(error)
      throw cause
    }
    closeQuietly(out.writer)
    if (mode === "pipe") closeQuietly(error.writer)
    let exitCode: number | undefined
    const settle = () => {
      if (exitCode === undefined || this.run !== run || run.outputs.some((output) => !output.ended)) return
      this.run = undefined
      this.holder?.json({ type: "exit", exit_code: exitCode })
      this.holder?.finish(1000, "process exited")
    }
    const output = (channel: 1 | 2, pipe: Pipe): ProcessPipe => {
      const made: ProcessPipe = new ProcessPipe(pipe, {
        data: (bytes) => {
          this.replay.write(bytes)
          this.holder?.output(channel, bytes)
        },
        end: settle,
        closed: () => this.open.delete(made)
      })
      this.open.add(made)
      return made
    }
    const run: Run = { mode, process, outputs: mode === "pty" ? [output(1, out)] : [output(1, out), output(2, error)] }
    this.run = run
    this.options.whenEnded(process, (code) => {
      exitCode = code
      for (const each of run.outputs) each.exited()
      settle()
    })
    process.child?.stdin?.on("drain", () => this.holder?.listen(true))
  }

  private input(connection: Connection, bytes: Uint8Array): void {
    const { run } = this
    const stdin = run?.process.child?.stdin
    if (run === undefined || stdin === null || stdin === undefined || !stdin.writable) return
    if (!stdin.write(run.mode === "pty" ? frame("d", bytes) : bytes)) connection.listen(false)
  }

  private signal(name: string): void {
    const { run } = this
    if (run === undefined || !isSignal(name)) return
    if (run.mode === "pipe") this.options.run(this.options.signal(run.process, name))
    else run.process.child?.stdin?.write(frame("s", Uint8Array.of(Os.constants.signals[name])))
  }

  private flow(flowing: boolean): void {
    for (const output of this.run?.outputs ?? []) {
      if (flowing) output.resume()
      else output.pause()
    }
  }
}
