// The operator's branding of the pages: name, colour, contact. A colour is mixed with black or white until text in it has a
// contrast of 4.5 to 1 (WCAG 2.2, 1.4.3), so any colour works.
import type { DynamicConfig } from '../../config/schema/config-schema.ts';
import { hashSource } from './page-scripts.ts';
import { GROUNDS, STYLE } from './page-style.ts';

export type Branding = NonNullable<DynamicConfig['branding']>;

interface Theme {
  readonly style: string;
  /** As a source in a policy. */
  readonly hash: string;
}

const CONTRAST = 4.5;
const WHITE = '#ffffff';
const BLACK = '#0a0f14';

const PLAIN: Theme = { style: STYLE, hash: hashSource(STYLE) };
/** The theme of the configuration in force. */
let last: { readonly color: string; readonly theme: Theme } | undefined;

export function brandName(branding: Branding | undefined): string {
  return branding?.name ?? 'Tollgate';
}

/** @param contact a mail address or the URL of a page, checked by the configuration */
export function contactHref(contact: string, subject: string): string {
  return /^https?:/.test(contact)
    ? contact
    : `mailto:${encodeURIComponent(contact).replace('%40', '@')}?subject=${encodeURIComponent(subject)}`;
}

/** The style with this accent colour, `#rrggbb`; with the default colour without one. */
export function themeOf(color: string | undefined): Theme {
  if (color === undefined) return PLAIN;
  if (last?.color === color) return last.theme;
  const light = accentOn(GROUNDS.light, color, BLACK);
  const dark = accentOn(GROUNDS.dark, color, WHITE);
  const style = `${STYLE}:root { ${light} }
@media screen and (prefers-color-scheme: dark) { :root { ${dark} } }
`;
  const theme = { style, hash: hashSource(style) };
  last = { color, theme };
  return theme;
}

/** CSS variables of an accent that is readable on all of these backgrounds. */
function accentOn(grounds: readonly string[], color: string, towards: string): string {
  const isReadable = (tone: string) => grounds.every((ground) => contrastOf(tone, ground) >= CONTRAST);
  let accent = color.toLowerCase();
  for (let share = 0.02; share < 1 && !isReadable(accent); share += 0.02) accent = mix(color, towards, share);
  const onAccent = contrastOf(WHITE, accent) >= contrastOf(BLACK, accent) ? WHITE : BLACK;
  // The hover colour moves away from the text, so that the contrast only grows.
  const press = mix(accent, onAccent === WHITE ? BLACK : WHITE, 0.18);
  return `--accent: ${accent}; --on-accent: ${onAccent}; --press: ${press};`;
}

function channelsOf(color: string): readonly number[] {
  return [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16));
}

function mix(color: string, other: string, share: number): string {
  const others = channelsOf(other);
  const mixed = channelsOf(color).map((value, index) =>
    Math.round(value * (1 - share) + (others[index] ?? 0) * share),
  );
  return `#${mixed.map((value) => value.toString(16).padStart(2, '0')).join('')}`;
}

/** WCAG 2.2: relative luminance of both, and their ratio; from 1 to 21. */
export function contrastOf(one: string, other: string): number {
  const [high = 0, low = 0] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

function luminance(color: string): number {
  const [red = 0, green = 0, blue = 0] = channelsOf(color).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
