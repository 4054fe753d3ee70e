// What a person sees of each plot of a report, without a network: node report.js URL PICTURE
const { withPage } = require('./page');

const [url, picture] = process.argv.slice(2);

// Of each curve: how large it is on the screen, and at how many of its points it is what is painted there.
const seen = () => [...document.querySelectorAll('figure')].map((figure) => ({
  title: figure.querySelector('figcaption').textContent,
  curves: [...figure.querySelectorAll('.series path.line')].map((path) => {
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
  console.log(JSON.stringify({ asked, problems, plots, bars, scripts: await page.locator('script').count() }));
});
