/** The words of a text, in lower case, without punctuation. */
export const words = (text) => text.toLowerCase().match(/\p{Letter}+(?:['’-]\p{Letter}+)*/gu) ?? []
