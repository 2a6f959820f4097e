import asyncio, tempfile
from pathlib import Path
from tests.world.federation import Federation
from tests.world.trust import make_trust
async def main():
    with tempfile.TemporaryDirectory() as d:
        trust = make_trust(Path(d)/"t")
        async with Federation(trust, Path(d)/"f") as f:
            await f.learn()
            await f.learn()
            for name in f.services:
                text=(await f.ask(name,"/metrics")).text
                print(name)
                for l in text.splitlines():
                    if l.startswith("shoal_refused_requests_total") or (l.startswith("shoal_http_requests_total") and ('status="4' in l or 'status="5' in l)): print("   ",l)
asyncio.run(main())
