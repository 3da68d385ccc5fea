// A visitor with nothing but a keyboard: walks a page by Tab, and says of each stop what it is and whether one can see it.
import { z } from 'zod';
import type { Page } from '../helpers/browser.ts';
import { until } from '../helpers/wait.ts';

const stop = z.object({
  /** Number of the stop on the page, from 0; -1 where nothing has the focus. */
  at: z.number(),
  tag: z.string(),
  type: z.string(),
  name: z.string(),
  isChecked: z.boolean(),
  isOpen: z.boolean(),
  value: z.string(),
  /** Width of the outline in CSS pixels; 0 without one. */
  ring: z.number(),
  /** Contrast of the outline to what is behind it. */
  contrast: z.number(),
  /** Sides of the outline that a box which scrolls, or the window, cuts off. */
  cut: z.array(z.string()),
  /** What is in front of it; empty when it is in front. */
  behind: z.string(),
});
export type Stop = z.output<typeof stop>;

/** What Tab is to reach, in the order of the document. A closed disclosure hides what is in it. */
const FOCUSABLE =
  'a[href], button, input:not([type=hidden]), select, textarea, summary, dialog[open] *[tabindex="0"], [tabindex="0"]';

const LIBRARY = `
const nameOf = (each) => (each.getAttribute('aria-label') ?? each.labels?.[0]?.innerText ?? each.innerText ?? '').trim().split('\\n')[0];
const luminance = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).map((part) => part / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behindOf = (each) => {
  for (let parent = each.parentElement; parent !== null; parent = parent.parentElement) {
    const color = getComputedStyle(parent).backgroundColor;
    if (!/, 0\\)$/.test(color)) return color;
  }
  return 'rgb(255, 255, 255)';
};
const cutOf = (each, out) => {
  const box = each.getBoundingClientRect();
  const ring = { left: box.left - out, top: box.top - out, right: box.right + out, bottom: box.bottom + out };
  const cut = new Set();
  const within = (left, top, right, bottom) => {
    if (ring.left < left - 1) cut.add('left');
    if (ring.top < top - 1) cut.add('top');
    if (ring.right > right + 1) cut.add('right');
    if (ring.bottom > bottom + 1) cut.add('bottom');
  };
  within(0, 0, innerWidth, innerHeight);
  for (let parent = each.parentElement; parent !== null && parent !== document.body; parent = parent.parentElement) {
    if (getComputedStyle(parent).overflowX === 'visible') continue;
    const { left, top } = parent.getBoundingClientRect();
    within(left, top, left + parent.clientWidth + 2, top + parent.clientHeight + 2);
  }
  return [...cut];
};
const stopOf = (each, at) => {
  const style = getComputedStyle(each);
  const ring = style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth);
  const box = each.getBoundingClientRect();
  const [one, other] = [luminance(style.outlineColor), luminance(behindOf(each))].sort((a, b) => b - a);
  const front = document.elementFromPoint(box.left + Math.min(box.width, innerWidth) / 2, Math.max(box.top, 0) + Math.min(box.height, innerHeight) / 2);
  const isFront = front !== null && (each.contains(front) || front.contains(each) || front.closest('label')?.contains(each));
  return {
    at, tag: each.localName, type: each.type ?? '', name: nameOf(each), value: String(each.value ?? ''),
    isChecked: each.checked === true, isOpen: each.parentElement?.open === true || each.getAttribute('aria-expanded') === 'true',
    ring, contrast: (one + 0.05) / (other + 0.05), cut: cutOf(each, ring + parseFloat(style.outlineOffset)),
    behind: isFront ? '' : String(front?.outerHTML).slice(0, 80),
  };
};
`;

/** The element with the focus, numbered when it has it for the first time. */
const ACTIVE = `(() => { ${LIBRARY}
  const each = document.activeElement;
  if (each === null || each === document.body || each === document.documentElement) return null;
  document.documentElement.dataset.stops ??= 0;
  if (each.dataset.stop === undefined) each.dataset.stop = document.documentElement.dataset.stops++;
  return stopOf(each, Number(each.dataset.stop));
})()`;

const IS_FOCUSED = `[null, document.activeElement].includes(document.querySelector('[autofocus]'))`;

/** All that can have the focus and is seen, in the order of the document, with their places. */
const ALL = `(() => { ${LIBRARY}
  return [...document.querySelectorAll('${FOCUSABLE}')]
    .filter((each) => each.checkVisibility() && !each.disabled)
    .map((each) => {
      const { left, top, right, bottom } = each.getBoundingClientRect();
      return { at: Number(each.dataset.stop ?? -1), name: each.localName + ' ' + nameOf(each),
        place: { left, right, top: top + scrollY, bottom: bottom + scrollY }, holds: each.querySelector('a, button, input, select') !== null };
    });
})()`;
const listed = z.object({
  at: z.number(),
  name: z.string(),
  holds: z.boolean(),
  place: z.object({ left: z.number(), right: z.number(), top: z.number(), bottom: z.number() }),
});

/** More than any page has. */
const MAX_STOPS = 400;

export class Keyboard {
  readonly #page: Page;

  constructor(page: Page) {
    this.#page = page;
  }

  async press(key: string): Promise<Stop | undefined> {
    await this.#page.keyboard.press(key);
    return await this.active();
  }

  async active(): Promise<Stop | undefined> {
    const found: unknown = await this.#page.evaluate(ACTIVE);
    return found === null ? undefined : stop.parse(found);
  }

  /** Tab until something with this name has the focus. */
  async to(name: string | RegExp): Promise<Stop> {
    const names: string[] = [];
    for (let count = 0; count < MAX_STOPS; count += 1) {
      const found = await this.press('Tab');
      if (found === undefined) continue;
      if (typeof name === 'string' ? found.name === name : name.test(found.name)) return found;
      if (found.at === 0 && names.length > 1) break;
      names.push(found.name);
    }
    throw new Error(`Tab reaches no ${name}, but ${names.join(' | ')}`);
  }

  /** Follows a link, or sends a form, by the key Enter, and waits for the page that answers, and for the focus where it begins. */
  async enter(): Promise<void> {
    await Promise.all([this.#page.waitForEvent('load'), this.#page.keyboard.press('Enter')]);
    // Chromium sets it with the first frame that it draws, which is behind the event on a busy machine.
    await until(async () => await this.#page.evaluate(IS_FOCUSED), 'the focus of the page');
  }

  /**
   * From the start of a page to its end.
   * @param visit at each stop
   * @returns the stops in their order, each once
   * @throws Error where Tab does not leave a stop behind
   */
  async walk(visit: (stop: Stop) => Promise<void>): Promise<readonly Stop[]> {
    const stops: Stop[] = [];
    let repeats = 0;
    for (let count = 0; count < MAX_STOPS; count += 1) {
      const found = await this.press('Tab');
      if (found === undefined || (found.at === 0 && stops.length > 1)) return stops;
      if (found.at === stops.length) {
        stops.push(found);
        repeats = 0;
        await visit(found);
        continue;
      }
      // A date has several parts, and each is a stop.
      repeats += 1;
      if (found.at !== stops.length - 1 || found.type !== 'date' || repeats > 4)
        throw new Error(`Tab stays at ${found.tag} ${found.name}, after ${stops.length} stops`);
    }
    throw new Error('Tab does not come to the end of the page');
  }

  /** What is wrong with the order of the stops, after a walk: what Tab did not reach, and where the eye goes elsewhere. */
  async disorder(): Promise<readonly string[]> {
    const all = z.array(listed).parse(await this.#page.evaluate(ALL));
    return all.flatMap(({ at, name, place, holds }, index) => {
      if (at !== index) return [`${name} is stop ${at}, and number ${index} on the page`];
      const next = all[index + 1];
      if (next === undefined || holds || next.holds) return [];
      const isBelow = next.place.bottom > place.bottom + 1;
      const isRight = next.place.left >= place.right - 1;
      return isBelow || isRight ? [] : [`${next.name} follows ${name}, and is seen before it`];
    });
  }
}
