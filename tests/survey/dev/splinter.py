import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "splinter==0.21.0"
from splinter import Browser
from splinter.exceptions import DriverNotFoundError
from splinter.element_list import ElementList
def cases():
    yield "unknown driver", lambda: Browser("unknown driver"), "terminal", "firm", "exceptions.py DriverNotFoundError"
    yield "no such element", lambda: ElementList([], find_by="css", query="#x").first, "terminal", "firm", "exceptions.py ElementDoesNotExist"
