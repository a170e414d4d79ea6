// @ts-check
// Dollars as text, and what is stored for a month. Pure: no document, no fetch, no clock.

const GIB = 1024 ** 3;
const WHOLE = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** Cents where there are any; below a dollar two figures that say something, and nothing finer than the least. @param {number} n @param {number} [least] */
export function dollars(n, least = 1e-6) {
  if (n === 0) return "$0";
  if (n < least) return `below $${least.toFixed(-Math.floor(Math.log10(least)))}`;
  return n >= 1 ? `$${WHOLE.format(n)}` : `$${n.toFixed(Math.max(2, 1 - Math.floor(Math.log10(n))))}`;
}

/** What so many bytes cost in a month, at the price of a GiB. @param {number} bytes @param {number} gibMonth */
export const perMonth = (bytes, gibMonth) => (bytes / GIB) * gibMonth;
