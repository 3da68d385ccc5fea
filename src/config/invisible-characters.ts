// Invisible characters in names: controls, direction marks, joiners. They steer terminals and make different names look the same. Within
// an emoji they are allowed: the joiners of a family, for example, are part of what is seen.

const PARTS = /(?<emoji>\p{RGI_Emoji})|[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gv;

/** @returns what to say of a name with an invisible character; undefined for another name */
export function invisibleFault(text: string): string | undefined {
  for (const { 0: character, index, groups } of text.matchAll(PARTS)) {
    if (groups?.['emoji'] !== undefined) continue;
    const place = `at position ${[...text.slice(0, index)].length + 1}`;
    return `a control character: U+${hexOf(character).toUpperCase().padStart(4, '0')} ${place}`;
  }
  return undefined;
}

/** The text with its invisible characters escaped, for terminals and messages. */
export function withoutInvisible(text: string): string {
  return text.replaceAll(PARTS, (part, emoji) => (emoji === undefined ? `\\u{${hexOf(part)}}` : part));
}

function hexOf(character: string): string {
  return (character.codePointAt(0) ?? 0).toString(16);
}
