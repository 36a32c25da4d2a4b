/**
 * Programs that run code inside a sandbox and keep its state. Each reads requests from its stdin, one line of JSON with `code`, which the code itself
 * does not see, and reports on descriptor 3, one line of JSON each: `{"ready": true}` at first, then for each piece of code `{"begun": true}`, from when on it
 * can be interrupted, and `{"done": true, "count", "results"?, "error"?}`.
 *
 * @internal
 */

const python = `import ast, base64, inspect, json, linecache, os, signal, sys, traceback, types
requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
report_fd = os.dup(3)
os.close(3)
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)
os.close(null)
module = types.ModuleType("__main__")
module.__builtins__ = __builtins__
sys.modules["__main__"] = module
sys.argv = [""]
loop = None
count = 0

def report(value):
    data = (json.dumps(value) + "\\n").encode()
    while data:
        data = data[os.write(report_fd, data):]

def evaluate(code):
    global loop
    value = eval(code, module.__dict__)
    if inspect.iscoroutine(value) and code.co_flags & inspect.CO_COROUTINE:
        import asyncio
        if loop is None:
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
        value = loop.run_until_complete(value)
    return value

def shown(value):
    results = {"text/plain": repr(value)}
    if isinstance(value, type):
        return results
    for name, mime in (("html", "text/html"), ("markdown", "text/markdown"), ("latex", "text/latex"), ("svg", "image/svg+xml"),
                       ("json", "application/json"), ("png", "image/png"), ("jpeg", "image/jpeg")):
        method = getattr(value, "_repr_%s_" % name, None)
        if not callable(method):
            continue
        try:
            data = method()
            if isinstance(data, tuple):
                data = data[0]
            if isinstance(data, bytes):
                data = base64.b64encode(data).decode("ascii")
            if data is not None:
                json.dumps(data)
                results[mime] = data
        except Exception:
            pass
    return results

def failure():
    kind, value, trace = sys.exc_info()
    own = evaluate.__code__.co_filename
    while trace is not None and trace.tb_frame.f_code.co_filename == own:
        trace = trace.tb_next
    lines = "".join(traceback.format_exception(kind, value, trace)).rstrip("\\n").split("\\n")
    try:
        text = str(value)
    except Exception:
        text = ""
    return {"ename": kind.__name__, "evalue": text, "traceback": lines}

def run(source):
    global count
    count += 1
    name = "<cell %d>" % count
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    flags = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
    tree = compile(source, name, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    evaluate(compile(tree, name, "exec", flags, dont_inherit=True))
    if last is None:
        return None
    value = evaluate(compile(last, name, "eval", flags, dont_inherit=True))
    if value is None:
        return None
    module.__dict__["_"] = value
    return shown(value)

signal.signal(signal.SIGINT, signal.SIG_IGN)
report({"ready": True})
for line in requests:
    source = json.loads(line)["code"]
    done = {"done": True}
    try:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            report({"begun": True})
            results = run(source)
            if results is not None:
                done["results"] = results
        except BaseException:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            done["error"] = failure()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        # It came between the end of the code and here.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    done["count"] = count
    report(done)
`

const javascript = `"use strict"
const fs = require("node:fs"), vm = require("node:vm"), util = require("node:util")
const { createRequire } = require("node:module"), { Readable } = require("node:stream"), path = require("node:path")
const requests = process.stdin, outputs = [process.stdout, process.stderr]
Object.defineProperty(process, "stdin", { value: Readable.from([]), configurable: true })
globalThis.require = createRequire(path.join(process.cwd(), "[code]"))
process.argv.length = 1
const dynamic = vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER
let count = 0, interrupt
const report = (value) => {
  const data = Buffer.from(JSON.stringify(value) + "\\n")
  for (let at = 0; at < data.length;) {
    try { at += fs.writeSync(3, data, at) } catch (cause) { if (cause.code !== "EAGAIN") throw cause }
  }
}
process.on("SIGINT", () => { if (interrupt) interrupt() })
const aside = (cause) => process.stderr.write("Uncaught " + (cause && cause.stack || util.inspect(cause)) + "\\n")
process.on("uncaughtException", aside)
process.on("unhandledRejection", aside)
class Interrupted extends Error { constructor() { super("Interrupted"); this.name = "Interrupted"; this.stack = "Interrupted" } }
const compile = (code, filename, lineOffset) => new vm.Script(code, { filename, lineOffset, ...(dynamic ? { importModuleDynamically: dynamic } : {}) })
const evaluate = async (code, filename) => {
  let script, waits = false
  try {
    // An object, not a block with a label.
    script = /^\\s*\\{[^]*\\}\\s*$/.test(code) ? compile("(" + code + "\\n)", filename, 0) : compile(code, filename, 0)
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause
    try { script = compile(code, filename, 0) } catch (again) {
      if (!/\\bawait\\b/.test(code)) throw again
      waits = true
      try { script = compile("(async () => (\\n" + code + "\\n))()", filename, -1) } catch { 
        try { script = compile("(async () => {\\n" + code + "\\n})()", filename, -1) } catch { throw again }
      }
    }
  }
  const value = script.runInThisContext({ breakOnSigint: true, displayErrors: false })
  return waits ? await value : value
}
const failure = (cause) => {
  if (cause && cause.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED") cause = new Interrupted()
  if (!(cause instanceof Error) && !util.types.isNativeError(cause)) return { ename: "Uncaught", evalue: util.inspect(cause), traceback: ["Uncaught " + util.inspect(cause)] }
  const lines = String(cause.stack || cause).split("\\n")
  const own = lines.findIndex((line) => /node:vm|\\[eval\\]|node:internal/.test(line))
  return { ename: String(cause.name), evalue: String(cause.message), traceback: own < 0 ? lines : lines.slice(0, own) }
}
const run = async (code) => {
  count++
  report({ begun: true })
  const done = { done: true, count }
  try {
    const value = await Promise.race([
      evaluate(code, "cell" + count + ".js").then((value) => ({ value })),
      new Promise((_, reject) => { interrupt = () => reject(new Interrupted()) })
    ])
    if (value.value !== undefined) {
      globalThis._ = value.value
      done.results = { "text/plain": util.inspect(value.value) }
    }
  } catch (cause) {
    done.error = failure(cause)
  }
  interrupt = undefined
  // What did not fit into the pipes at once is written by and by.
  for (const stream of outputs) await new Promise((resolve) => stream.write("", resolve))
  report(done)
}
let text = "", queue = Promise.resolve()
requests.setEncoding("utf8")
requests.on("data", (chunk) => {
  text += chunk
  for (let end = text.indexOf("\\n"); end >= 0; end = text.indexOf("\\n")) {
    const { code } = JSON.parse(text.slice(0, end))
    text = text.slice(end + 1)
    queue = queue.then(() => run(code))
  }
})
requests.on("end", () => process.exit())
report({ ready: true })
`

export type Language = "bash" | "javascript" | "python"

export const isLanguage = (text: string): text is Language => ["bash", "javascript", "python"].includes(text)

export interface Driver {
  /** What the language needs in the sandbox, found by the sandbox's own `PATH`. */
  readonly program: string
  /** For the sandbox's shell; fails with status 127 where that program is missing. */
  readonly script: string
  readonly args: ReadonlyArray<string>
  readonly envs: { readonly [name: string]: string }
  readonly request: (code: string) => string
}

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

const json = (code: string): string => `${JSON.stringify({ code })}\n`

const found = (program: string, rest: string) =>
  `command -v ${program} >/dev/null 2>&1 || exit 127\nexec ${program} ${rest}`

/**
 * An interactive shell, because that is the one which an interrupt brings back to its next line, whatever it was doing. What it says about having no
 * terminal goes nowhere. The code sees neither the lines nor the descriptor of the reports.
 */
const bash: Driver = {
  program: "bash",
  script: found("bash", "--norc --noprofile --noediting -i 4>&2 2>/dev/null"),
  args: [],
  envs: { PS1: "", PS2: "" },
  request: (code) =>
    `printf '{"begun":true}\\n' >&3; eval -- ${quote(code)} </dev/null 3>&-\n{ printf '{"done":true,"status":%d}\\n' "$?" >&3; set +vxn; } 2>/dev/null\n`
}

export const bashSetup = `set +H +m +o history\nunset PS1 PS2 HISTFILE\nPS1= PS2=\nexec 2>&4 4>&-\nprintf '{"ready":true}\\n' >&3\n`

export const drivers: { readonly [L in Language]: Driver } = {
  bash,
  javascript: {
    program: "node",
    script: found("node", `-e "$1"`),
    args: [javascript],
    envs: {},
    request: json
  },
  python: {
    program: "python3",
    script: found("python3", `-u -c "$1"`),
    args: [python],
    envs: {},
    request: json
  }
}
