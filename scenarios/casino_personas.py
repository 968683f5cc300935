"""The campers of the casino scenarios: who they are, and why they could use more food, water and firewood.

Sixty invented personas. A block holds the persona and two ways to put the reason for each resource (in the order of
`casino.ITEMS`); how much it matters is put before it, by the seat's priority for the resource (`OPENERS`). Texts are
short, and each is said in many ways, so that two scenarios of one persona do not read alike. A persona belongs to
one split.
"""

from __future__ import annotations

import random
from functools import cache
from typing import NamedTuple

OPENERS: tuple[tuple[str, ...], ...] = (  # for the high, the medium, the low priority; no two end alike
    (
        *("More than anything,", "Nothing beats this:", "My biggest wish:", "Without it I suffer:"),
        *("Top of my list:", "It truly matters:", "Really important to me:", "This comes first:"),
        *("I badly need it:", "Most urgent of all:", "My main worry:", "Above everything else,"),
    ),
    (
        *("Quite useful as well:", "Next in line:", "Second on my mind:", "Fairly important too:"),
        *("Of middling weight:", "After that,", "Good to have:", "It would help:"),
        *("Somewhat needed here:", "Then comes this point:", "Neither first nor last:", "Worth some effort:"),
    ),
    (
        *("Only a small matter:", "Nice if possible:", "The least pressing:", "A minor thing:"),
        *("I could do without:", "Barely a concern:", "Lowest on my side:", "Hardly urgent:"),
        *("If some is left,", "Not much, though:", "More of a luxury:", "I would not insist:"),
    ),
)


class Persona(NamedTuple):
    """Who somebody is, and two ways to put the reason for each resource."""

    who: str
    reasons: tuple[tuple[str, str], ...]  # food, water, firewood


def reason(persona: Persona, item: int, level: int, opener: str, rng: random.Random) -> str:
    """The reason for resource number `item` at priority `level` (0 high, 1 medium, 2 low), in words of this draw."""
    assert opener in OPENERS[level]
    return f"{opener} {rng.choice(persona.reasons[item])}."


@cache
def personas(split: str) -> tuple[Persona, ...]:
    """The personas of a split."""
    lines = BLOCKS[split].strip().split("\n")
    found = []
    for who, *rows in (lines[i : i + 4] for i in range(0, len(lines), 4)):
        pairs = [row.split(" | ") for row in rows]
        found.append(Persona(who, tuple((one, other) for one, other in pairs)))
    return tuple(found)


BLOCKS = {
    "train": """
retired ferry captain, camping alone
sea habits leave me hungry every hour | big stews are all I can cook
my flask leaks on every climb | salty rations dry out my throat
old bones ache once the dew falls | a bright flame guides me back
mother with two toddlers
the little ones eat between meals too | mashed carrots run out before noon
bottles must be rinsed all day long | muddy hands need washing before every nap
storytime ends in shivers without flames | damp baby clothes dry beside the embers
trail runner in training
fifty kilometres burn whatever I eat | without porridge my legs give up
sweat pours off me on hills | cramps come whenever I drink little
after dusk runs my muscles stiffen | wet shoes never dry on their own
uncle of six noisy nephews
boys that age swallow whole loaves | somebody always burns the first batch
water fights empty our canisters daily | lemonade vanishes faster than I mix it
ghost tales demand a proper blaze | the smallest boy fears total darkness
birdwatcher with frail knees
dawn watches pass slower with sandwiches | I share crumbs with the jays
long sits in sunshine parch me | my pills go down with big gulps
warm knees are my only comfort | mornings by the marsh are freezing
ceramics teacher and her class
pupils bargain away their snacks early | hungry hands make rather sloppy pots
clay turns hard unless kept moist | rinsing tools takes bucket after bucket
we fire small bowls in pits | a kiln hole devours many logs
carpenter on his honeymoon
my wife promised a feast tonight | wedding leftovers went bad on Monday
our cooler sprang a leak yesterday | champagne gave both of us headaches
she loves to dance around flames | romantic evenings need a steady glow
choir that travels by bicycle
pedalling forty miles makes altos ravenous | our bread got crushed in panniers
dry throats cannot hold high notes | singers sip between every two songs
rehearsals last well past sundown here | the bass section is always cold
novelist with a deadline
I forget shopping when chapters flow | peanuts keep my typing fingers moving
strong tea fuels each new page | ink stains need plenty of scrubbing
I write at night by firelight | failed drafts alone will not burn
veterinarian with three huskies
those dogs steal from my plate | kibble got soaked in last rain
panting animals empty bowls within minutes | every paw gets cleaned of tar
nights here are cold even for huskies | coyotes keep away from tall flames
amateur astronomer and his daughter
we stay awake and keep nibbling | midnight soup is our family ritual
lenses are washed before every viewing | cocoa by the telescope needs litres
standing still under stars chills us | thawing frosted fingers takes an hour
fishing club on its outing
nothing has bitten for three days | we packed lures instead of lunch
the lake is too murky to drink | gutting tables must be rinsed often
smoking our catch requires steady heat | waders hang damp until somebody lights up
nurse recovering from surgery
healing wounds call for hearty meals | doctors told me to gain weight
bandages are soaked twice each day | tablets upset me unless well diluted
I must not catch a chill | sleeping warm speeds up my recovery
grandparents with a caravan
Grandpa snores louder when underfed | pancakes for breakfast are not negotiable
the caravan tank has rusted through | our old kettle whistles all afternoon
its heater broke down near the pass | card games outdoors need some warmth
drummer of a folk band
roadies eat like a small army | gigs leave me weak and starving
drumming in heat makes me drip | hoarse voices crave something to sip
audiences gather only around big fires | cold drumskins lose their tuning fast
geology student with samples
hammering rocks since dawn drains me | my lunchbox fell into a crevice
dusty stones show colours when wet | limestone powder coats my whole mouth
the cave leaves me chilled through | notes get written after nightfall
family that moved from the tropics
our aunt cooks for all neighbours | rice alone will not please anybody
we are used to many showers | fruit gets washed before we peel
nobody here owns a thick coat | frost is quite new to us
scout leader short of supplies
twelve scouts queue up for seconds | raccoons raided our pantry box overnight
purification tablets ran out this morning | dishwashing duty takes three full tubs
fire badges are earned this weekend | wet tents must dry before inspection
yoga instructor on retreat
fasting week ended and appetite returned | guests pay for three vegan dishes
detox plans mean endless herbal infusions | mats are wiped after every lesson
sunrise poses on frost feel brutal | our closing ceremony circles around flames
long distance trucker on leave
diner portions have spoiled my stomach | beans from cans get dull quickly
cab air has dried my skin | instant coffee is half my diet
I cannot sleep in silent cold | crackling logs replace the motor hum
mushroom collector with a cough
baskets stay empty so I starve | unknown caps are not worth tasting
steaming bowls clear my blocked chest | every stem is rinsed of soil
drying mushrooms takes racks above embers | coughing gets worse in damp air
two sisters on a reunion
catching up goes along with cake | Mother taught us to overfeed guests
we promised to wash our hair | talking for hours leaves us croaky
childhood evenings always had a bonfire | her thin blanket is barely enough
wildlife photographer in a hide
waiting for otters makes me peckish | bait took the space of lunch
mud on the camera must come off | crouching in reeds is thirsty work
numb hands ruin long exposures | the hide is cold as a cellar
beekeeper who lost his tent
stings make me crave sweet things | honey alone upsets my stomach
sticky gloves want a thorough soak | smoke from hives scratches my throat
sleeping under open sky gets frosty | without canvas I depend on embers
chess players on a long weekend
thinking hard empties our snack box | losers cook so meals get large
sharp minds need to stay hydrated | boards get sticky from spilled juice
endgames run on after dark | gloves are useless for moving pawns
swimmer preparing a lake crossing
cold lakes burn endless calories | coach wants pasta three times daily
lake weed must be showered off | swallowed algae leave an awful taste
blue lips need an hour beside heat | wet suits freeze stiff by morning
blacksmith showing his craft
swinging hammers works up an appetite | apprentices are paid in sausages
hot iron gets quenched in barrels | forge soot sits in every pore
my portable forge eats whole trunks | visitors come only when sparks fly
pregnant woman and her partner
I am eating for a second person | cravings strike at all odd hours
my midwife insists on drinking often | swollen feet get a cool bath
shivering is bad for both of us | my back relaxes near the heat
marathon walkers with blisters
every stage ends with empty pockets | chocolate bars melted in our sacks
blisters are bathed each evening | springs along our route ran dry
socks have to dry before sunrise | stiff calves loosen beside the coals
magician with rabbits
rabbits nibble up half my greens | tricks fail on a growling stomach
hutches are scrubbed after each show | my vanishing jug act spills plenty
flash paper needs a flame nearby | stage nights outdoors are bitterly cold
""",
    "val": """
lighthouse keeper on holiday
lonely years taught me slow feasts | gulls made off with my ham
fog signals left my throat raw | salt crust must be washed away
I feel lost without a beacon | towers were damp and I still shiver
archaeologist with volunteers
digging trenches doubles what people eat | pizza out here is only dreamt of
shards are cleaned in countless basins | desert dust settles on every tongue
finds are logged under evening light | tarps let all warmth escape
father teaching his son to hike
growing boys refuse to share crackers | he dropped our supper down a gully
small hikers tire when they thirst | scraped elbows need a careful rinse
lighting flames is lesson number one | he will not sleep without light
pastry chef without an oven
testing recipes consumes crates of goods | a camp kitchen challenge was my idea
dough turns out dry as bricks | copper pans are scoured after use
baking in ashes takes hot coals | caramel burns unless heat stays even
students after their final exam
celebration grills started without shopping first | nobody has had lunch since Tuesday
hangovers call for large cold jugs | dust from the road cakes our faces
textbooks burn badly as it turns out | singing till three keeps us outside
gardener with hay fever
home grown beans all got eaten | sneezing fits leave me oddly famished
pollen has to be rinsed off | seedlings came along and look wilted
smoke drives the pollen away nicely | nights outdoors stuff up my nose
kayakers stuck by low rivers
paddling upstream took all our rations | flour got wet in the hatch
mudholes are all that remains here | sunburn needs cooling every single hour
soaked sleeping bags steam beside flames | a signal for rescuers must burn
painter in search of autumn light
still life pears were eaten already | colours blur when I skip supper
watercolours cannot be mixed from air | brushes clog unless rinsed at once
varnish dries slowly in cold tents | I sketch the embers every night
cyclist with a broken chain
pushing uphill ate through my bars | grease got into the bread bag
both bottles rolled into a ravine | oily fingers soil everything I touch
I am stranded until Friday morning | bending metal works only when red hot
widower with an old spaniel
cooking for one I misjudge amounts | the spaniel begs with great success
his kidneys mean he drinks constantly | stairs of stone leave us panting
arthritis troubles him and me alike | evenings feel less empty by firelight
mountain guide between tours
carrying ropes needs four solid meals | clients emptied my pantry on Sunday
altitude dries everybody out quickly | thermos flasks must be refilled nightly
avalanche talks are held around flames | ice on the gear has to melt
knitting circle on a dare
scones disappear while we count stitches | dares make old ladies surprisingly hungry
wool is dyed in great tubs | tea breaks happen every half hour
needles slip from frozen fingers | dyed yarn dries on lines nearby
""",
    "test": """
beginner at camping, badly prepared
I brought a blender and no groceries | my only egg carton has cracked
no idea which stream is safe | sunscreen stings until it is washed off
lighters failed me twice last night | summer pyjamas were a silly choice
cowboy poet with a mule
verses do not fill a belly | the mule ate my cornbread
mules refuse to walk when thirsty | reciting all day scrapes my voice
coffee tastes right only off coals | wolves howl closer than I like
triathlete and her coach
recovery shakes are not proper dinners | race weight was last month's problem
electrolytes have to be stirred in | we rinse off lake slime twice
ice baths must be followed by heat | stretching outside at five is harsh
botanist mapping ferns
ferns are pretty but quite inedible | surveying slopes keeps me chewing
specimens wilt unless sprayed each hour | sticky sap will not come off dry
presses need warm air underneath | labels are written late at night
bakers from a mountain village
kneading at dawn calls for breakfast | customers beg us for free rolls
every loaf wants a full jug | flour dust parches lips and lungs
stone ovens swallow logs by dozens | yeast sleeps when evenings are cool
grandmother with her grandson
the lad has hollow legs | my dumplings demand heaps of filling
his mud pies need a tap | warm foot baths are my nightly joy
spooky shadows entertain us both | circulation at my age is poor
engineers testing a solar stove
clouds ruined every dinner so far | test plans list nine trial meals
boiling trials evaporate litres each round | panels collect grime and need wiping
our stove is useless after sunset | reference measurements use plain wood heat
diver with an earache
decompression leaves a hole in my stomach | mussels here are off limits
rinsing salt from hoses never ends | ear drops require boiled fresh stuff
cold drafts make the pain return | wet neoprene turns nights miserable
film crew with no trailer
extras were promised catering and revolt | long takes end in sugar crashes
fake rain scenes used up our tank | makeup removal takes basins of it
the script asks for a campfire | generators froze so lights are out
shepherd moving a flock
cheese is sold before I taste it | lambs got my last oatcakes
ewes crowd round any full trough | the pass has dried all brooks
lynx tracks circle the pen again | newborn lambs are laid near embers
violin maker gathering spruce
carrying trunks downhill makes me wolf dinners | resin on bread tastes dreadful
wood is soaked before any bending | glue needs thinning at every step
bending irons are heated in coals | green spruce itself just hisses
twins on their birthday
two cakes are the strict tradition | guests turned up with empty hands
balloon battles drain barrels in minutes | frosting sticks to every face
sixteen candles do not warm anybody | marshmallows were promised to all comers
climber with bandaged hands
climbing on crackers makes me dizzy | I cannot open tins one handed
dressings get changed beside a basin | chalk dust tastes awful without rinsing
gripping frozen rock tears open cuts | bivouacs at altitude are merciless
retired teacher writing memoirs
remembering school lunches makes me hungry | biscuits vanish while chapters grow
ink powder is mixed fresh daily | lozenges alone do not soothe me
spectacles fog up in chilly tents | memories come easier beside a hearth
rescue dog handler on standby
searching at night skips every supper | reward treats are counted one by one
dogs overheat in heavy harnesses | nostrils must be flushed of ash
we rest outdoors between two alarms | frozen leashes crack like dry twigs
monks on a silent walk
our vow allows one meal only | begging bowls stayed empty this week
washing feet opens each evening prayer | barley tea is poured at vigils
night prayers are held without shelter | thin robes let the wind through
puppeteer whose van broke down
puppets earn applause but no bread | a mechanic arrives only on Thursday
papier mache begins with full buckets | the radiator drank all my reserve
painted heads crack in the frost | shadow plays are nothing without flames
surveyors lost in the fog
detours have cost us two dinners | compass errors grow with empty stomachs
mist is wet yet fills no cup | instruments caked in mud read wrong
smoke would show others our spot | waiting for clear skies is freezing
""",
}
