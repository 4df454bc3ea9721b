from geoblanket.planning.on_the_road import Judges as Judges
from geoblanket.planning.plan import Outcome as Outcome
from geoblanket.planning.plan import Plan as Plan
from geoblanket.planning.plan import Rated as Rated
from geoblanket.planning.schedules import Schedule as Schedule
from geoblanket.planning.search import make_plan as make_plan
from geoblanket.planning.wishes import Wishes as Wishes
