// Rules for spellings of one name that some parser treats as equal: JSON members, form fields and query parameters.

/**
 * The folded form of a name, which is equal for all spellings that some reader treats as the same name: Go's encoding/json folds case
 * by Unicode (U+017F is an s, U+212A a k), its v2 and protobuf's JSON mapping also ignore `_` and `-`, Java and .NET fold i by locale
 * (U+0130, U+0131), and readers in C end a name at U+0000.
 * @param name unescaped
 */
export function foldName(name: string): string {
  if (/^[a-z\d]*$/.test(name)) return name;
  const end = name.indexOf('\0');
  return (end === -1 ? name : name.slice(0, end))
    .replace(/[_-]/g, '')
    .replace(/[\u0130\u0131]/g, 'i')
    .replaceAll('\u017f', 's')
    .toLowerCase();
}

/**
 * The letters and digits of a folded name: some readers drop invalid characters, treat compatible characters as equal, or write lists
 * as `file_ids[]`.
 */
export function plainName(name: string): string {
  const folded = foldName(name.normalize('NFKC'));
  return /[^a-z\d]/.test(folded) ? folded.replace(/\[[^\]]*\]$/, '').replace(/[^a-z\d]/g, '') : folded;
}
