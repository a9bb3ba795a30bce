// Fires the Worker's cron triggers, in UTC as on Cloudflare.

const FIELDS = [
  [0, 59, []],
  [0, 23, []],
  [1, 31, []],
  [1, 12, ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]],
  [1, 7, ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]],
];

function parseField(text, [low, high, names]) {
  const number = (part) => {
    const named = names.indexOf(part.toUpperCase());
    const value = named >= 0 ? named + low : Number(part);
    if (!Number.isInteger(value) || value < low || value > high) throw new Error(`"${part}" is not within ${low}-${high}`);
    return value;
  };
  const values = new Set();
  for (const part of text.split(",")) {
    const [range, step = "1"] = part.split("/");
    const [from, to] = range === "*" ? [low, high] : range.includes("-") ? range.split("-").map(number) : [number(range), part.includes("/") ? high : number(range)];
    if (!/^[1-9]\d*$/.test(step)) throw new Error(`"${part}" has no step`);
    for (let value = from; value <= to; value += Number(step)) values.add(value);
  }
  return values;
}

/** Parses a five-field cron expression (days of the week: 1 is Sunday); throws an Error that says what is wrong. */
export function parseCron(expression) {
  const texts = expression.trim().split(/\s+/);
  if (texts.length !== FIELDS.length) throw new Error(`cron "${expression}" needs five fields`);
  const [minutes, hours, days, months, weekdays] = texts.map((text, i) => parseField(text, FIELDS[i]));
  const anyDay = texts[2] === "*";
  const anyWeekday = texts[4] === "*";
  return (date) => {
    const day = days.has(date.getUTCDate());
    const weekday = weekdays.has(date.getUTCDay() + 1);
    // When both days are restricted either will do, as cron has always had it.
    const dayMatches = anyDay || anyWeekday ? day && weekday : day || weekday;
    return minutes.has(date.getUTCMinutes()) && hours.has(date.getUTCHours()) && months.has(date.getUTCMonth() + 1) && dayMatches;
  };
}

/** Calls `fire(cron, scheduledTime)` at the start of each minute that an expression names, until `stop` is called. */
export function startCrons(expressions, fire) {
  const crons = expressions.map((expression) => [expression, parseCron(expression)]);
  let timer;
  const next = () => {
    const minute = Math.floor(Date.now() / 60_000) + 1;
    timer = setTimeout(() => {
      const date = new Date(minute * 60_000);
      for (const [expression, matches] of crons) if (matches(date)) fire(expression, date);
      next();
    }, minute * 60_000 - Date.now());
  };
  if (crons.length > 0) next();
  return () => clearTimeout(timer);
}
