// Prints "N passed, N failed[, N skipped]" from the file vitest's JSON reporter wrote, so that CI can end with one line of truth.
// A run that left no readable results, or that failed without a failing test (a file that does not load), counts as failed.
import fs from "node:fs"

export const resultLine = (file) => {
  let results
  try {
    results = JSON.parse(fs.readFileSync(file, "utf8"))
  } catch {
    return { line: "0 passed, 1 failed", ok: false }
  }
  const count = { passed: 0, failed: 0, skipped: 0 }
  for (const suite of results.testResults ?? []) {
    const before = count.failed
    for (const { status } of suite.assertionResults ?? []) {
      if (status === "passed" || status === "failed") count[status]++
      else count.skipped++
    }
    if (suite.status === "failed" && count.failed === before) count.failed++
  }
  if ((results.success !== true || count.passed === 0) && count.failed === 0) count.failed = 1
  const skipped = count.skipped > 0 ? `, ${count.skipped} skipped` : ""
  return { line: `${count.passed} passed, ${count.failed} failed${skipped}`, ok: count.failed === 0 }
}

if (process.argv[1] !== undefined && fs.realpathSync(process.argv[1]) === fs.realpathSync(new URL(import.meta.url))) {
  const { line, ok } = resultLine(process.argv[2])
  console.log(line)
  process.exitCode = ok ? 0 : 1
}
