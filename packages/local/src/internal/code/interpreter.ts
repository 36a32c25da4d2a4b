/** @internal */

import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import { completeEvent, event, initEvent } from "../events.js"
import type { Decoder } from "../output.js"
import { EventQueue, rawDecoder } from "../output.js"
import type { Pipe, PipeReader } from "../pipes.js"
import { EndMark, readPipe } from "../pipes.js"
import type { Ended, Process } from "../processes.js"
import { closeQuietly } from "../rooted.js"
import type { Language } from "./drivers.js"
import { bashSetup, drivers } from "./drivers.js"

/** A longer report is that of code that wrote to the reports' descriptor itself, or has a result beyond use. */
const MAX_REPORT = 64 * 1024 * 1024

interface Failure {
  readonly ename: string
  readonly evalue: string
  readonly traceback: ReadonlyArray<string>
}

interface Outcome {
  readonly count: number
  readonly results: object | undefined
  readonly error: Failure | undefined
}

interface Stream {
  readonly mark: EndMark
  readonly decoder: Decoder
  ended: boolean
}

interface Run {
  /** It is being run. */
  readonly begun: Deferred.Deferred<void>
  readonly over: Deferred.Deferred<void>
  readonly queue: EventQueue
  readonly startedAt: number
  readonly streams: { readonly stdout: Stream; readonly stderr: Stream }
  outcome: Outcome | undefined
}

export interface InterpreterPipes {
  readonly stdout: Pipe
  readonly stderr: Pipe
  readonly reports: Pipe
}

const isRecord = (value: unknown): value is { readonly [key: string]: unknown } =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const strings = (value: unknown): ReadonlyArray<string> => (Array.isArray(value) ? value.map(String) : [])

const exitOutcome = (language: Language, { error, exitCode }: Ended, count: number): Outcome => {
  if (language === "bash" && exitCode === 0) return { count, results: undefined, error: undefined }
  const words = error ?? `exit status ${exitCode}`
  return {
    count,
    results: undefined,
    error:
      language === "bash"
        ? { ename: "CommandExecError", evalue: String(exitCode), traceback: [words] }
        : { ename: "InterpreterExited", evalue: words, traceback: [`the interpreter has ended: ${words}`] }
  }
}

/** A process that runs code, one piece after the other. */
export class Interpreter {
  private run: Run | undefined
  private text = ""
  private runs = 0
  private over: Ended | undefined
  private isReady = false
  private readonly readers: ReadonlyArray<PipeReader>
  private readonly outputs: ReadonlyArray<PipeReader>

  constructor(
    readonly language: Language,
    readonly process: Process,
    private readonly pipes: InterpreterPipes,
    private readonly now: () => number,
    private readonly onReady: () => void
  ) {
    for (const { writer } of [pipes.stdout, pipes.stderr, pipes.reports]) closeQuietly(writer)
    this.outputs = [this.output("stdout", pipes.stdout), this.output("stderr", pipes.stderr)]
    const decoder = new TextDecoder()
    const reports = readPipe(
      pipes.reports.reader,
      (bytes) => this.report(decoder.decode(bytes, { stream: true })),
      () => {}
    )
    this.readers = [...this.outputs, reports]
    for (const reader of this.readers) reader.resume()
    if (language === "bash") process.child?.stdin?.write(bashSetup)
  }

  get busy(): boolean {
    return this.run !== undefined
  }

  /** Must not be busy. */
  start(id: string, code: string): EventQueue {
    const startedAt = this.now()
    const stream = (type: "stdout" | "stderr"): Stream => ({
      // The writing end is used again for the next.
      mark: new EndMark(this.pipes[type].marker, false),
      decoder: rawDecoder(type),
      ended: false
    })
    const run: Run = {
      begun: Deferred.unsafeMake(FiberId.none),
      over: Deferred.unsafeMake(FiberId.none),
      queue: new EventQueue((wanted) => {
        for (const output of this.outputs) {
          if (wanted) output.resume()
          else if (this.run === run) output.pause()
        }
      }),
      startedAt,
      streams: { stdout: stream("stdout"), stderr: stream("stderr") },
      outcome: undefined
    }
    this.run = run
    this.runs++
    run.queue.push(initEvent(id, startedAt))
    if (this.over === undefined) this.process.child?.stdin?.write(drivers[this.language].request(code))
    else this.finish(run, exitOutcome(this.language, this.over, this.runs))
    return run.queue
  }

  /** The process has ended. */
  exited(ended: Ended): void {
    this.over = ended
    const { run } = this
    if (run === undefined) this.close()
    else if (run.outcome === undefined) this.finish(run, exitOutcome(this.language, ended, this.runs))
  }

  /**
   * Interrupts what runs, by `signal`, as soon as it can be: what comes before the code does is lost. Returns when it is over, or does not end
   * for it.
   */
  interrupt(signal: Effect.Effect<void>): Effect.Effect<void> {
    const { run } = this
    if (run === undefined) return Effect.void
    const unlessOver = Effect.suspend(() => (this.run === run ? signal : Effect.void))
    // Node takes a signal for nothing that comes just before it runs the code.
    const pauses = this.language === "javascript" ? [100, 300, 2000] : [2000]
    return Effect.zipRight(
      Effect.timeoutOption(Deferred.await(run.begun), "5 seconds"),
      Effect.forEach(
        pauses,
        (pause) => Effect.zipRight(unlessOver, Effect.timeoutOption(Deferred.await(run.over), pause)),
        { discard: true }
      )
    )
  }

  /** Lets go of the pipes; a run that is under way ends as it is. */
  close(): void {
    for (const reader of this.readers) reader.close()
    for (const { marker } of [this.pipes.stdout, this.pipes.stderr, this.pipes.reports]) closeQuietly(marker)
    const { run } = this
    this.run = undefined
    if (run !== undefined) this.tellOver(run)
    run?.queue.finish("")
  }

  private output(type: "stdout" | "stderr", pipe: Pipe): PipeReader {
    return readPipe(
      pipe.reader,
      (bytes) => {
        // Between two runs comes what something wrote that was left behind.
        const { run } = this
        const stream = run?.streams[type]
        if (run === undefined || stream === undefined || stream.ended) return
        const part = stream.mark.filter(bytes)
        if (part.bytes.length > 0 && run.queue.wanted) run.queue.push(stream.decoder.write(part.bytes, this.now()))
        if (!part.ended) return
        stream.ended = true
        run.queue.push(stream.decoder.end(this.now()))
        this.settle(run)
      },
      () => {}
    )
  }

  private report(text: string): void {
    this.text += text
    if (this.text.length > MAX_REPORT) this.text = ""
    for (let end = this.text.indexOf("\n"); end >= 0; end = this.text.indexOf("\n")) {
      const line = this.text.slice(0, end)
      this.text = this.text.slice(end + 1)
      this.message(line)
    }
  }

  private message(line: string): void {
    let value: unknown
    try {
      value = JSON.parse(line)
    } catch {
      return
    }
    if (!isRecord(value)) return
    if (value["ready"] === true && !this.isReady) {
      this.isReady = true
      this.onReady()
    }
    const { run } = this
    if (value["begun"] === true && run !== undefined) Deferred.unsafeDone(run.begun, Effect.void)
    if (value["done"] !== true || run === undefined || run.outcome !== undefined) return
    const { count, error, results, status } = value
    this.finish(run, {
      count: typeof count === "number" ? count : this.runs,
      results: isRecord(results) ? results : undefined,
      error: isRecord(error)
        ? { ename: String(error["ename"]), evalue: String(error["evalue"]), traceback: strings(error["traceback"]) }
        : typeof status === "number" && status !== 0
          ? { ename: "CommandExecError", evalue: String(status), traceback: [`exit status ${status}`] }
          : undefined
    })
  }

  private tellOver({ begun, over }: Run): void {
    Deferred.unsafeDone(begun, Effect.void)
    Deferred.unsafeDone(over, Effect.void)
  }

  /** Everything it has written by now comes before the marks. */
  private finish(run: Run, outcome: Outcome): void {
    run.outcome = outcome
    run.streams.stdout.mark.write()
    run.streams.stderr.mark.write()
    this.settle(run)
  }

  private settle(run: Run): void {
    const { outcome, streams } = run
    if (this.run !== run || outcome === undefined || !streams.stdout.ended || !streams.stderr.ended) return
    this.run = undefined
    this.tellOver(run)
    const timestamp = this.now()
    run.queue.push(event({ type: "execution_count", execution_count: outcome.count, timestamp }))
    if (outcome.results !== undefined) run.queue.push(event({ type: "result", results: outcome.results, timestamp }))
    run.queue.finish(
      outcome.error === undefined
        ? completeEvent(run.startedAt, timestamp)
        : event({ type: "error", error: outcome.error, timestamp })
    )
    if (this.over !== undefined) this.close()
  }
}
