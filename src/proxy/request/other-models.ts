// The models that a request names beside its own: of other tries, and of tools that call one.
import { decodeString, JsonScanner, type Span } from '../../wire/json/json.ts';

const QUOTE = 0x22;

/** The texts of `model` in the elements of a list, and in their `svg`. @param span of a valid value */
export function modelsIn(body: Buffer, span: Span | undefined): readonly string[] {
  if (span === undefined) return [];
  const models: string[] = [];
  const scanner = new JsonScanner();
  scanner.reset(body, span.start, span.end);
  if (!scanner.enterArray()) return [];
  while (scanner.nextElement()) addModels(body, scanner, models);
  return models;
}

/** Skips the value at the position of the scanner. */
function addModels(body: Buffer, scanner: JsonScanner, into: string[]): void {
  if (!scanner.enterObjectOrSkip()) return;
  while (scanner.nextMember()) {
    const isModel = scanner.keyIs('model');
    if (scanner.keyIs('svg')) addModels(body, scanner, into);
    else {
      const text = scanner.skipIf(QUOTE);
      if (isModel && text !== null) into.push(decodeString(body, text));
    }
  }
}
