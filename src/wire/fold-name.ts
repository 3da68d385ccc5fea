// Rules for spellings of one name that some parser treats as equal: JSON members, form fields and query parameters.

/**
 * The folded form of a name: two names are the same name if their folded forms are equal. Readers differ in what they take
 * for the same: Go's encoding/json folds case by Unicode (U+017F is an s, U+212A a k), its v2 and protobuf's JSON mapping
 * ignore `_` and `-` as well, Java's and .NET's fold i by locale (U+0130, U+0131), and readers in C end a name at U+0000.
 * @param name with its escapes undone
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
 * The letters and digits of a folded name: some readers drop what is no valid character, take compatible characters for the
 * same, or write lists as `file_ids[]`.
 */
export function plainName(name: string): string {
  const folded = foldName(name.normalize('NFKC'));
  return /[^a-z\d]/.test(folded) ? folded.replace(/\[[^\]]*\]$/, '').replace(/[^a-z\d]/g, '') : folded;
}
