const quote = (word: string): string =>
  /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`

/** A command given as words becomes a command line that a POSIX shell reads as just these words. */
export const commandLine = (command: string | ReadonlyArray<string>): string =>
  typeof command === "string" ? command : command.map(quote).join(" ")
