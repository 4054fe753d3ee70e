"""Does each GPU compute right, and as fast as its model should?"""
