// Synthetic sample table of people, generated in the browser, always identical.

const TOWNS = { Dublin: 400, Zurich: 260, Oslo: 180, Porto: 90, Cork: 45, Basel: 18, Ghent: 6, Athens: 1 };
const EDUCATION = ["primary", "secondary", "bachelor", "master"];
const WORK = ["cleaner", "clerk", "nurse", "engineer"];
const SEED = 20260101;

/** Returns a generator of uniform numbers from 0 to 1 (mulberry32). */
function chance(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Returns 1,000 people as CSV; income depends on age, education and hours; some answers are missing. */
export function people() {
  const draw = chance(SEED);
  const normal = () => Math.sqrt(-2 * Math.log(1 - draw())) * Math.cos(2 * Math.PI * draw());
  const within = (least, value, most) => Math.round(Math.min(most, Math.max(least, value)));
  const lines = ["age,sex,town,education,occupation,hours_per_week,income,savings"];
  for (const [town, inhabitants] of Object.entries(TOWNS)) {
    for (let person = 0; person < inhabitants; person += 1) {
      const age = within(18, 44 + 15 * normal(), 95);
      const level = Math.floor(draw() ** 1.4 * 4);
      const work = within(0, level + 0.7 * normal(), 3);
      const hours = within(4, 37 + 8 * normal(), 70);
      const income = Math.exp(
        9.9 + 0.22 * level + 0.18 * work + (age - 18) / 90 + 0.5 * Math.log(hours / 37) + 0.28 * normal(),
      );
      const savings = income * ((age - 15) / 60) * Math.exp(0.9 * normal());
      lines.push(
        [
          age,
          draw() < 0.5 ? "female" : "male",
          town,
          EDUCATION[level],
          WORK[work],
          hours,
          draw() < 0.03 ? "" : income.toFixed(2),
          draw() < 0.06 ? "" : savings.toFixed(2),
        ].join(","),
      );
    }
  }
  const [head, ...rows] = lines;
  for (let last = rows.length - 1; last > 0; last -= 1) {
    const other = Math.floor(draw() * (last + 1));
    [rows[last], rows[other]] = [rows[other], rows[last]];
  }
  return `${[head, ...rows].join("\n")}\n`;
}
