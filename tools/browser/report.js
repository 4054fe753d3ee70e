// What a person sees of each plot of a report, without a network, and of pages on a phone:
// node report.js PICTURE URL URL…
const { withPage } = require('./page');

const [picture, ...pages] = process.argv.slice(2);
const url = pages[0];

// Of each curve: how large it is on the screen, and at how many of its points it is what is painted there.
const seen = () => [...document.querySelectorAll('figure')].map((figure) => ({
  title: figure.querySelector('figcaption').textContent,
  curves: [...figure.querySelectorAll('.wide .series path.line')].map((path) => {
    path.scrollIntoView({ block: 'center' });
    const box = path.getBoundingClientRect();
    const style = getComputedStyle(path);
    const hits = [0.1, 0.3, 0.5, 0.7, 0.9].filter((part) => {
      const at = path.getPointAtLength(path.getTotalLength() * part).matrixTransform(path.getScreenCTM());
      return document.elementsFromPoint(at.x, at.y).includes(path);
    });
    return { width: box.width, height: box.height, stroke: style.stroke, hits: hits.length };
  }),
}));

// On a phone: how far the page can be moved sideways, the smallest letters, what begins beside something else, and how
// much of the screen's width the plots take.
const onPhone = () => {
  const shown = (one) => one.getClientRects().length > 0;
  const texts = [...document.querySelectorAll('body *')].filter((one) => shown(one)
    && [...one.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()));
  const scale = (one) => (one.getScreenCTM ? one.getScreenCTM().a : 1);
  const beside = [...document.querySelectorAll('main > *, main dl > *, td, figure')].filter(shown).filter((one) => {
    const before = one.previousElementSibling;
    return before && shown(before) && one.getBoundingClientRect().top < before.getBoundingClientRect().bottom - 2;
  });
  const frames = [...document.querySelectorAll('.scroll, pre, figure')].filter(shown);
  return {
    sideways: Math.max(document.scrollingElement.scrollWidth - innerWidth, ...frames.map((one) => one.scrollWidth - one.clientWidth)),
    letters: Math.min(...texts.map((one) => parseFloat(getComputedStyle(one).fontSize) * scale(one))),
    beside: beside.map((one) => one.textContent.trim().slice(0, 40)),
    plots: [...document.querySelectorAll('figure .narrow > svg')].filter(shown).map((one) => one.getBoundingClientRect().width / innerWidth),
  };
};

withPage(async (page, context) => {
  const asked = [], problems = [];
  page.on('request', (request) => asked.push(request.url()));
  page.on('console', (message) => problems.push(message.text()));
  page.on('pageerror', (error) => problems.push(String(error)));
  await context.setOffline(true);
  await page.goto(url);
  const plots = await page.evaluate(seen);
  const bars = await page.locator('.bar').evaluateAll((all) => all.map((bar) => bar.getBoundingClientRect().width));
  await page.screenshot({ path: picture, fullPage: true });
  const scripts = await page.locator('script').count();
  const phone = [];
  for (const size of [{ width: 360, height: 740 }, { width: 599, height: 740 }]) {
    await page.setViewportSize(size);
    for (const each of pages) {
      await page.goto(each);
      phone.push({ page: each, ...size, ...await page.evaluate(onPhone) });
      await page.screenshot({ path: `${picture}-${size.width}-${phone.length}.png`, fullPage: true });
    }
  }
  console.log(JSON.stringify({ asked, problems, plots, bars, scripts, phone }));
});
