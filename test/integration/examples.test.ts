import { spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import * as Path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"

const root = fileURLToPath(new URL("../..", import.meta.url))

it("the main job survives the SIGKILL of its process, and its timeline says so", () => {
  const env = { ...process.env }
  delete env["OPEN_SANDBOX_URL"]
  const run = spawnSync(process.execPath, [Path.join(root, "examples/main-job/main.ts")], {
    cwd: root,
    env,
    encoding: "utf8",
    timeout: 100_000
  })
  assert.strictEqual(run.status, 0, `${run.stdout}\n${run.stderr}`)
  const timeline = run.stdout.slice(run.stdout.indexOf("== timeline"))
  const rows = timeline.split("\n").slice(2, 8)
  assert.deepStrictEqual(
    rows.map((row) => /(\d) +(npm .*?) {2,}(live|replayed) +(.*)$/.exec(row)?.slice(1, 4)),
    [
      ["1", "npm install --no-audit --no-fund", "live"],
      ["2", "npm test", "live"],
      ["3", "npm run report", "live"],
      ["1", "npm install --no-audit --no-fund", "replayed"],
      ["2", "npm test", "replayed"],
      ["3", "npm run report", "live"]
    ]
  )
  assert.match(rows[2] ?? "", /no end recorded: killed/)
  assert.match(rows[5] ?? "", / ms +0$/)
  const ledger = /^ledger: (.*)$/m.exec(run.stdout)?.[1] ?? ""
  assert.isTrue(Fs.existsSync(ledger))
  Fs.rmSync(Path.dirname(ledger), { recursive: true })
}, 120_000)

it("spans and metrics reach an OpenTelemetry exporter, secrets do not", () => {
  const run = spawnSync(process.execPath, [Path.join(root, "examples/observability.ts")], {
    cwd: root,
    encoding: "utf8",
    timeout: 100_000
  })
  assert.strictEqual(run.status, 0, `${run.stdout}\n${run.stderr}`)
  const spans = ["Sandboxes.create", "Sandbox.exec", "Execd.command", "Ledger.appendAll"]
  const metrics = ["sandboxes_live", "execs", "exec_duration_seconds", "exec_output_bytes", "ledger_append_seconds"]
  for (const name of [...spans, ...metrics.map((metric) => `sandglass_${metric}`)]) {
    assert.include(run.stdout, `name: "${name}"`)
  }
  assert.notInclude(run.stdout + run.stderr, "never-shown")
}, 120_000)

for (const [name, expected] of [
  ["sessions", ["test in app", "largest: 20", "ran once"]],
  ["terminal", ["30 100", "exit code 3"]],
  ["code", ["sum of squares: 50", "TypeError: "]],
  [
    "memory",
    [
      '{"name":"Ada","languages":["en","fr"]}',
      "Never travels on Fridays (verified)",
      '- "timezone": "Europe/London"',
      '{"facts":[{"content":"Prefers the window seat on trains","score":',
      '"workingKeysCopied":2,"semanticFactsCopied":3',
      '{"forgotten":2,"written":1,"refused":false}',
      "- Never travels on Fridays; Prefers the window seat on trains",
      "before: true\nafter: false"
    ]
  ],
  [
    "agent-memory",
    [
      "first session, scout: remembered",
      "second session, another sandbox without that file: exit code 1",
      '- "The project deploys on Tuesdays" (verified)',
      'child: {"step":2,"of":3}\nparent: {"step":1,"of":3}',
      "third session, resumed (replayed: true): deploys on Tuesdays"
    ]
  ],
  ["detached", ["found: for n in 1 2 3", "step 1\nstep 2\nstep 3\nexit code 0"]],
  [
    "conversations/main",
    ['tool: {"exitCode":0,"output":"1000\\n"}\nassistant: It printed', "8 messages, ", "latest of ada: Counting lines"]
  ],
  [
    "workflows/ci",
    ["tests: attempt 2", "version: 1.4.0", "report: all tests passed\ndeployed web 1.4.0\ndeployed api 1.4.0"]
  ],
  ["workflows/matrix", ["[0.0] node:20: tests passed", "[0.2] node:24: tests passed", "[1] 3 images passed"]],
  [
    "workflows/etl",
    [
      "killed in the middle of the transformation\nresumed: 1,ada 2,bob 3,carol",
      "warehouse: extracted, table created, loaded 3 rows\n",
      "failed: StepFailed in step 2 of stage 1",
      "warehouse: extracted, table created, loaded 3 rows, extracted, table created, table dropped"
    ]
  ],
  [
    "network",
    [
      'egress.rule_added {"action":"allow","target":"api.example.com"}',
      'credential.added {"name":"token"}',
      'credential.bound {"name":"api","hosts":["api.example.com"],"credentials":["token"]}',
      'credential.replaced {"name":"token"}',
      'egress.rule_removed {"target":"registry.example.com"}',
      "headers: OPENSANDBOX-SECURE-ACCESS",
      "hello from the sandbox",
      "lives 55 minutes longer",
      "cpus: some",
      "measurements: 2",
      "diagnostics: there are some"
    ]
  ]
] as const) {
  it(`examples/${name}.ts`, () => {
    const run = spawnSync(process.execPath, [Path.join(root, `examples/${name}.ts`)], {
      cwd: root,
      encoding: "utf8",
      timeout: 60_000
    })
    assert.strictEqual(run.status, 0, `${run.stdout}\n${run.stderr}`)
    const shown = run.stdout.replaceAll("\r", "")
    for (const text of expected) assert.include(shown, text)
    assert.notInclude(run.stdout + run.stderr, "never-shown")
  }, 90_000)
}

for (const name of ["ci", "matrix", "etl"]) {
  it(`the graph of examples/workflows/${name}.ts is the one in the guide`, () => {
    const run = spawnSync(process.execPath, [Path.join(root, `examples/workflows/${name}.ts`), "--graph"], {
      cwd: root,
      encoding: "utf8",
      timeout: 60_000
    })
    assert.strictEqual(run.status, 0, run.stderr)
    assert.include(
      Fs.readFileSync(Path.join(root, "docs/workflow.md"), "utf8"),
      `\`\`\`mermaid\n${run.stdout.trim()}\n\`\`\``
    )
  }, 90_000)
}
