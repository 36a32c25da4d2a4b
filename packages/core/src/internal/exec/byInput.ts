/**
 * Scripts that a shell is told by its standard input. A command line shows in the list of processes and in what servers say of their commands, and Linux
 * limits one to 128 KiB; none of that holds for what comes by the input.
 */

/** The command of a bash that waits for its script. It takes no more of its input than that. */
export const waiting = `IFS= read -r __sg_line || kill -9 $$; eval "$__sg_line"`

const oneLine = (script: string): string =>
  `$'${script.replace(/[\\']/g, "\\$&").replaceAll("\n", "\\n").replaceAll("\r", "\\r")}'`

/** What it waits for. NUL has no place in it. */
export const telling = (script: string): Uint8Array =>
  new TextEncoder().encode(`unset __sg_line; eval ${oneLine(script)}\n`)
